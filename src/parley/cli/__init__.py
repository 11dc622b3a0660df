"""The command line: `parley serve`, and commands for operators."""

from __future__ import annotations

import os
import sys

UMASK = 0o077
"""What a command creates holds messages or leads to them: no other user may read it."""


def main() -> None:
    """Run one command. Exit status 0: done; 1: it failed; 2: wrong usage."""
    os.umask(UMASK)
    from parley.cli.problems import EXTRAS, complain

    try:
        _run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        complain(error)
        sys.exit(1)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        from parley.cli import startup

        options = startup.plain_options(arguments[1:])
        if options is not None:
            startup.start(options)
            return
    from parley.cli.commands import run

    run()
