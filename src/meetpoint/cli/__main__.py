"""`python -m meetpoint.cli`: the command, where it has not been put on the path."""

from meetpoint.cli import main

main()
