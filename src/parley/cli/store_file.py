"""`store.toml` in a data folder: the engine, and what a command needs to open the same store.

`parley serve` and `parley store init` write it. It is a small configuration file without secrets. A command's
own configuration overrides it, so by default a command opens the store of the folder.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from parley.config import SECRETS, Config, Values
from parley.errors import ConfigError
from parley.store.folder import DATABASE_NAME, FILE_MODE, FOLDER_MODE

FILE_NAME = "store.toml"
HEADING = "# The store of this folder, for parley's commands. It holds no passwords.\n"

KEPT = {
    "store": ("engine", "sequencing", "allocator"),
    "dynamodb": ("endpoint", "region", "prefix"),
    "cassandra": ("contact_points", "port", "keyspace", "local_dc", "username", "tls", "ca"),
    "kafka": ("brokers", "prefix", "security", "username", "ca", "partitions", "replication"),
    "redis": ("url", "prefix"),
    "cluster": ("sequencers",),
    "archive": ("target", "after_days", "endpoint", "region"),
    "retention": ("days",),
}
ALWAYS = ("engine", "sequencing")


def read(folder: Path) -> Values | None:
    """The settings of the folder's store; None if it has none, or this user may not read it."""
    path = folder / FILE_NAME
    try:
        values: Values = tomllib.loads(path.read_text(encoding="utf-8"))
        engine = msgspec.convert(values, Config).store.engine
    except (FileNotFoundError, NotADirectoryError):
        return {"store": {"engine": "sqlite"}} if _has_file(folder) else None
    except PermissionError:
        return None  # a command that needs the folder reports it
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}): delete it; the next start of the server writes it again"
        ) from error
    return {**values, "store": {**values.get("store", {}), "engine": engine}}


def _has_file(folder: Path) -> bool:
    """The SQLite file also shows that there is a store: an older one, or a restored backup."""
    try:
        return (folder / DATABASE_NAME).is_file()
    except PermissionError:
        return False


def write(folder: Path, config: Config) -> None:
    """Record the store of a configuration; creates the folder if necessary."""
    text = HEADING + "".join(_section(section, config) for section in KEPT)
    path = folder / FILE_NAME
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    new = path.with_suffix(".new")
    with open(new, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
    os.replace(new, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _section(section: str, config: Config) -> str:
    """The settings of a section that differ from their defaults."""
    chosen = getattr(config, section)
    usual = type(chosen)()
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
        for key in KEPT[section]
        if (value := getattr(chosen, key)) != getattr(usual, key) or key in ALWAYS
        if not _is_secret(key, value)
    ]
    return f"\n[{section}]\n{''.join(lines)}" if lines else ""


def _is_secret(key: str, value: object) -> bool:
    """An address may contain a password, before its host or among its parameters."""
    if key not in SECRETS:
        return False
    parts = urlsplit(str(value))
    return bool(key != "url" or "@" in parts.netloc or parts.query)
