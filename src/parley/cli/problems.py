"""How a command tells what went wrong: sentences on stderr, never a traceback for a person's mistake."""

from __future__ import annotations

import sys

from parley.errors import Refused


def explain(problem: BaseException | str) -> str:
    """What a person reads. The first line says what is wrong, further lines what to do."""
    if isinstance(problem, Refused):
        return f"{problem.refusal.reason} ({problem.refusal.code})"
    if isinstance(problem, OSError) and problem.strerror:
        where = f"{problem.filename}: " if problem.filename else ""
        return f"{where}{problem.strerror}"
    return str(problem) or type(problem).__name__


def complain(problem: BaseException | str) -> None:
    first, *rest = explain(problem).splitlines()
    print(f"parley: {first}", *(f"  {line}" for line in rest), sep="\n", file=sys.stderr)
