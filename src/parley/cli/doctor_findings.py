"""What `parley doctor` finds, line by line."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

CLOCK_MS_OFF_MAX = 2_500
"""A Date in HTTP has whole seconds."""

State = Literal["ok", "look", "wrong"]
MARKS: dict[State, str] = {"ok": "✓", "look": "!", "wrong": "✗"}


class Finding(Struct, omit_defaults=True):
    """One line. `look`: it works, and could be better; `wrong`: it does not, or will not for long."""

    state: State
    what: str
    says: str
    remedy: str = ""
