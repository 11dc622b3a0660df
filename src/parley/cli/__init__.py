"""The command line."""

from __future__ import annotations


def main() -> None:
    from parley.cli.commands import app

    app()
