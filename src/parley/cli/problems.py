"""How a command tells what went wrong: sentences on stderr, never a traceback for a person's mistake."""

from __future__ import annotations

import errno
import os
import re
import sys

from parley import config
from parley.errors import ConfigError, Refused

TOLD = {
    errno.EEXIST: "{path} is a file, and a folder is needed: choose another --data",
    errno.ENOTDIR: "{path} cannot be reached: a part of the path is a file, not a folder",
    errno.EACCES: "{path} cannot be used by {user}: run this as its owner, or change who owns it (chown)",
    errno.EPERM: "{path} cannot be used by {user}: run this as its owner, or change who owns it (chown)",
    errno.EROFS: "{path} cannot be written: its file system is read-only; choose another --data",
    errno.ENOSPC: "{path} cannot be written: the disk is full; make room and try again",
    errno.ENOENT: "{path} does not exist: check the spelling, or make it",
}


def explain(problem: BaseException | str) -> str:
    """What a person reads. The first line says what is wrong, further lines what to do."""
    if isinstance(problem, Refused):
        return f"{problem.refusal.reason} ({problem.refusal.code})"
    if isinstance(problem, ConfigError):
        return _with_variables(str(problem))
    if isinstance(problem, OSError) and problem.strerror:
        if not problem.filename:
            return problem.strerror
        says = TOLD.get(problem.errno or 0, f"{{path}} cannot be used: {problem.strerror}")
        return says.format(path=problem.filename, user=user_name())
    return str(problem) or type(problem).__name__


def user_name() -> str:
    """As whom this runs."""
    import pwd

    try:
        return f"the user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"the user {os.geteuid()}"


def _with_variables(says: str) -> str:
    """Settings by the names that they have in the environment, too."""
    if says.endswith(")"):  # it says where already
        return says
    words = re.findall(r"[a-z]+\.[a-z_]+", says)
    named = [
        config.variable_of(section, key)
        for section, keys in config.sections().items()
        for key in keys
        if f"{section}.{key}" in words
    ]
    return f"{says} (in the environment: {', '.join(named)})" if named else says


def complain(problem: BaseException | str) -> None:
    first, *rest = explain(problem).splitlines()
    print(f"parley: {first}", *(f"  {line}" for line in rest), sep="\n", file=sys.stderr)
