"""`python -m parley` is the same as `parley`."""

from parley.cli import main

main()
