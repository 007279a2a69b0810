"""Tests of what studies the product."""
