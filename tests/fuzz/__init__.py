"""Fuzzing with atheris, which looks for inputs that lead where no input led before: `make fuzz`.

`targets` says what must hold of any bytes, `python -m tests.fuzz TARGET` looks for bytes of which it does not hold.
"""
