"""A group of commands of which one needs no name: `parley token NAME` is `parley token make NAME`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

MAKE = "make"


class WithDefault(TyperGroup):
    """What does not begin with the name of a command is for the default one."""

    default_command = MAKE

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else [self.default_command, *args])
