"""Configuration: one TOML file, every key also as PARLEY_SECTION_KEY in the environment."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from parley.errors import ConfigError

PREFIX = "PARLEY_"
OTHER_VARIABLES = frozenset({"PARLEY_DATA", "PARLEY_CONFIG", "PARLEY_URL", "PARLEY_TOKEN"})
"""Read by the command line itself."""
TEST_PREFIXES = ("PARLEY_TEST_", "PARLEY_SIMULATE_")
PASSWORD_LETTERS_MIN_EXPOSED = 8


class Server(Struct, forbid_unknown_fields=True):
    """Where it listens. `origins`: the web origins that may connect, beside the server's own.

    `proxies`: whose word on a client's address counts, beside a proxy on this machine.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    data: str = "./data"
    hosts: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    proxies: list[str] = field(default_factory=list)


class Store(Struct, forbid_unknown_fields=True):
    engine: Literal["sqlite"] = "sqlite"
    sequencing: Literal["atomic", "two_phase"] = "atomic"


class Accounts(Struct, forbid_unknown_fields=True):
    """`registration`: "loopback" is open on a loopback bind without a proxy, closed elsewhere."""

    registration: Literal["loopback", "open", "closed"] = "loopback"
    password_letters_min: int | None = None


class Limits(Struct, forbid_unknown_fields=True):
    """`rates`: "auto" is off for direct requests to a loopback bind, on elsewhere."""

    rates: Literal["auto", "on", "off"] = "auto"


class Log(Struct, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    format: Literal["json", "text"] = "json"


class Config(Struct, forbid_unknown_fields=True):
    server: Server = field(default_factory=Server)
    store: Store = field(default_factory=Store)
    accounts: Accounts = field(default_factory=Accounts)
    limits: Limits = field(default_factory=Limits)
    log: Log = field(default_factory=Log)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.server.host)

    @property
    def password_letters_min(self) -> int:
        """Anything goes on a machine of one's own; not where a proxy or an address lets others in."""
        chosen = self.accounts.password_letters_min
        if chosen is not None:
            return chosen
        is_private = self.is_loopback and not self.server.hosts and not self.server.origins
        return 1 if is_private else PASSWORD_LETTERS_MIN_EXPOSED


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[Config, list[str]]:
    """The configuration, and the PARLEY_* variables that mean nothing."""
    values = _read(path) if path is not None else {}
    unknown = _overlay(values, environment)
    try:
        config = msgspec.convert(values, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the configuration is not valid: {error}") from error
    if not 0 <= config.server.port <= 65_535:
        raise ConfigError(f"server.port must be 0 to 65535, not {config.server.port}")
    return config, unknown


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _overlay(values: dict[str, Any], environment: Mapping[str, str]) -> list[str]:
    known = {f"{PREFIX}{s}_{k}".upper(): (s, k) for s, keys in sections().items() for k in keys}
    unknown = []
    for name, text in environment.items():
        if name in known:
            section, key = known[name]
            value: object = (
                [part.strip() for part in text.split(",") if part.strip()] if key in LISTS else text
            )
            values.setdefault(section, {})[key] = value
        elif name.startswith(PREFIX) and name not in OTHER_VARIABLES and not name.startswith(TEST_PREFIXES):
            unknown.append(name)
    return sorted(unknown)


LISTS = frozenset({"hosts", "origins", "proxies"})


def sections() -> dict[str, list[str]]:
    """Every section and its keys."""
    return {
        name: [key.name for key in msgspec.structs.fields(part)]
        for name, part in (
            ("server", Server),
            ("store", Store),
            ("accounts", Accounts),
            ("limits", Limits),
            ("log", Log),
        )
    }


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
