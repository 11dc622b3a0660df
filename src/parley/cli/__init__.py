"""The command line: `parley serve`, and what an operator does beside it."""

from __future__ import annotations

import sys


def main() -> None:
    """Run one command; the exit status is 0, 1 when it failed, 2 when it was asked wrongly."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        from parley.cli import starting

        options = starting.plain_options(arguments[1:])
        if options is not None:
            starting.start(options)
            return
    from parley.cli.commands import run

    run()
