"""Judges of a run: its history, the checkers, and the report. Nothing here is used to run a node."""
