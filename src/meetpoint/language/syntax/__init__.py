"""Syntax of filters: text to tokens to tree, and a normal form back to text."""
