"""`python -m meetpoint.cli`: the command, where it is not on the path."""

from meetpoint.cli import main

main()
