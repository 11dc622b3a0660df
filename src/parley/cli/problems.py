"""How a command reports a failure: sentences on stderr, never a traceback for a user's mistake."""

from __future__ import annotations

import errno
import os
import re
import sys

from parley import config
from parley.errors import ConfigError, Refused
from parley.extras import how_to_install

MESSAGES = {
    errno.EEXIST: "{path} is a file, not a folder: choose another --data",
    errno.ENOTDIR: "{path} cannot be reached: a part of the path is a file, not a folder",
    errno.EACCES: "{path} cannot be used by {user}: run this as its owner, or change who owns it (chown)",
    errno.EPERM: "{path} cannot be used by {user}: run this as its owner, or change who owns it (chown)",
    errno.EROFS: "{path} cannot be written: its file system is read-only; choose another --data",
    errno.ENOSPC: "{path} cannot be written: the disk is full; free some space and try again",
    errno.ENOENT: "{path} does not exist: check the spelling, or create it",
}

EXTRAS = {
    "aiokafka": "kafka",
    "PIL": "server",
    "apsw": "server",
    "argon2": "server",
    "botocore": "dynamodb",
    "cassandra": "cassandra",
    "obstore": "server",
    "prometheus_client": "server",
    "redis": "redis",
    "structlog": "server",
    "uvloop": "server",
    "zstandard": "server",
}
"""The extra that installs each optional package."""


def explain(problem: BaseException | str) -> str:
    """The message for the user. The first line message what is wrong, further lines what to do."""
    if isinstance(problem, Refused):
        return f"{problem.refusal.reason} ({problem.refusal.code})"
    if isinstance(problem, ModuleNotFoundError) and problem.name in EXTRAS:
        return f"this needs the package {problem.name}\ninstall it: {how_to_install(EXTRAS[problem.name])}"
    if isinstance(problem, ConfigError):
        return _with_variables(str(problem))
    if isinstance(problem, OSError) and problem.strerror:
        if not problem.filename:
            return problem.strerror
        message = MESSAGES.get(problem.errno or 0, f"{{path}} cannot be used: {problem.strerror}")
        return message.format(path=problem.filename, user=user_name())
    return str(problem) or type(problem).__name__


def user_name() -> str:
    """The user who runs this process."""
    import pwd

    try:
        return f"the user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"the user {os.geteuid()}"


def _with_variables(message: str) -> str:
    """Add the name of each setting's environment variable."""
    if message.endswith(")"):  # it already message where
        return message
    words = re.findall(r"[a-z]+\.[a-z_]+", message)
    named = [
        config.variable_of(section, key)
        for section, keys in config.sections().items()
        for key in keys
        if f"{section}.{key}" in words
    ]
    return f"{message} (in the environment: {', '.join(named)})" if named else message


def complain(problem: BaseException | str) -> None:
    first, *rest = explain(problem).splitlines()
    print(f"parley: {first}", *(f"  {line}" for line in rest), sep="\n", file=sys.stderr)
