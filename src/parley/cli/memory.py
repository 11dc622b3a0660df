"""What a data folder remembers of its store: the engine, and what a command needs to open the same one.

`parley serve` and `parley store init` write it. It is a configuration file in little, without secrets: a
command reads it beneath its own configuration, so that it opens the store of the folder and makes no other.
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
from parley.store.sqlite.database import FILE_NAME as SQLITE_NAME

FILE_NAME = "store.toml"
HEADING = "# Which store this folder belongs to, for parley's commands. Passwords are not kept here.\n"

KEPT = {
    "store": ("engine", "sequencing", "allocator"),
    "dynamodb": ("endpoint", "region", "prefix"),
    "kafka": ("brokers", "prefix", "security", "username", "ca", "partitions", "replication"),
    "redis": ("url", "prefix"),
    "cluster": ("sequencers",),
}
ALWAYS = ("engine", "sequencing")


def read(folder: Path) -> Values | None:
    """The settings of the folder's store; None where there is none, or none that this user may see."""
    path = folder / FILE_NAME
    try:
        values: Values = tomllib.loads(path.read_text(encoding="utf-8"))
        engine = msgspec.convert(values, Config).store.engine
    except (FileNotFoundError, NotADirectoryError):
        return {"store": {"engine": "sqlite"}} if _has_file(folder) else None
    except PermissionError:
        return None  # who needs the folder will be told
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}): delete it, the next start of the server writes it again"
        ) from error
    return {**values, "store": {**values.get("store", {}), "engine": engine}}


def _has_file(folder: Path) -> bool:
    """A store on SQLite is known by its file, too: one from before, or a restored backup."""
    try:
        return (folder / SQLITE_NAME).is_file()
    except PermissionError:
        return False


def write(folder: Path, config: Config) -> None:
    """Remember the store of a configuration; a folder that does not exist yet is made."""
    text = HEADING + "".join(_section(section, config) for section in KEPT)
    path = folder / FILE_NAME
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(".new")
    with open(new, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
    os.replace(new, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _section(section: str, config: Config) -> str:
    """What of a section differs from its defaults."""
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
    """An address may have a password in it, before its host or among its parameters."""
    if key not in SECRETS:
        return False
    parts = urlsplit(str(value))
    return bool(key != "url" or "@" in parts.netloc or parts.query)
