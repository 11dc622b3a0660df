"""Configuration: one TOML file, every key also as PARLEY_SECTION_KEY in the environment."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, field

from parley.errors import ConfigError

PREFIX = "PARLEY_"
OTHER_VARIABLES = frozenset({"PARLEY_DATA", "PARLEY_CONFIG", "PARLEY_URL", "PARLEY_TOKEN"})
"""Read by the command line itself."""
TEST_PREFIXES = ("PARLEY_TEST_", "PARLEY_SIMULATE_", "PARLEY_SERVICES_")
PASSWORD_LETTERS_MIN_EXPOSED = 8
PORT_MAX = 65_535
LIKENESS_MIN = 0.75
"""How like a known name a mistyped one must be (0 to 1) to be told as what was meant."""
ROLES = ("gateway", "ingest", "delivery", "sequencer")
ROLES_DEFAULT = ("gateway", "ingest", "delivery")
ROLES_LATER = ("push", "archiver")


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
    """`allocator`: who gives the numbers when sequencing is two_phase on a shared engine."""

    engine: Literal["sqlite", "dynamodb"] = "sqlite"
    sequencing: Literal["atomic", "two_phase"] = "atomic"
    allocator: Literal["dynamodb", "redis", "sequencer"] = "dynamodb"


class Dynamodb(Struct, forbid_unknown_fields=True):
    """`endpoint`: empty for AWS itself. `prefix`: before each table's name."""

    endpoint: str = ""
    region: str = ""
    prefix: str = ""


class Redis(Struct, forbid_unknown_fields=True):
    """`url`: redis:// or rediss://, with its password if there is one; empty for none.

    `prefix`: before each key and channel, but not before the counters of chats, whose names are unique.
    """

    url: str = ""
    prefix: str = ""


class Kafka(Struct, forbid_unknown_fields=True):
    """`brokers`: host:port; none keeps the bus inside the process. `prefix`: before each topic's name."""

    brokers: list[str] = field(default_factory=list)
    prefix: str = ""
    security: Literal["plaintext", "tls", "sasl_tls"] = "plaintext"
    username: str = ""
    password: str = ""
    ca: str = ""
    partitions: int = 12
    replication: int = 1


class Bus(Struct, forbid_unknown_fields=True):
    """`ack`: whether a send is answered once it is stored, or once its event is on the bus as well."""

    ack: Literal["stored", "published"] = "stored"


class Cluster(Struct, forbid_unknown_fields=True):
    """Where other nodes reach this one, and the secret that they all share.

    `advertise`: the address that others use, if it is not the one bound. `sequencers`: base addresses.
    """

    node: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    secret: str = ""
    roles: list[str] = field(default_factory=lambda: list(ROLES_DEFAULT))
    sequencers: list[str] = field(default_factory=list)


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
    dynamodb: Dynamodb = field(default_factory=Dynamodb)
    redis: Redis = field(default_factory=Redis)
    kafka: Kafka = field(default_factory=Kafka)
    bus: Bus = field(default_factory=Bus)
    cluster: Cluster = field(default_factory=Cluster)
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


Values = dict[str, Any]
"""Settings as they are written: by section, then by key."""


def load(
    path: Path | None, environment: Mapping[str, str] = os.environ, beneath: Values | None = None
) -> tuple[Config, list[str]]:
    """The configuration, and the PARLEY_* variables that mean nothing.

    The environment wins over the file, the file over what lies `beneath`.
    """
    values = _read(path) if path is not None else {}
    for section, keys in (beneath or {}).items():
        if isinstance(values.setdefault(section, {}), dict):
            values[section] = {**keys, **values[section]}
    unknown = _overlay(values, environment)
    try:
        config = msgspec.convert(values, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(_explained(values, path, environment) or str(error)) from error
    for name, port in (("server", config.server.port), ("cluster", config.cluster.port)):
        if not 0 <= port <= PORT_MAX:
            where = origin(name, "port", path, environment)
            raise ConfigError(f"{name}.port must be 0 to {PORT_MAX}, not {port} ({where})")
    try:
        check_roles(config)
    except ConfigError as error:
        raise ConfigError(f"{error} ({origin('cluster', 'roles', path, environment)})") from error
    return config, unknown


def origin(section: str, key: str, path: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """Where a setting was written: its variable, or the file."""
    variable = variable_of(section, key)
    return variable if variable in environment or path is None else str(path)


def variable_of(section: str, key: str) -> str:
    return f"{PREFIX}{section}_{key}".upper()


def suggestion(variable: str) -> str | None:
    """The variable that somebody meant who wrote one that means nothing."""
    known = [*_variables(), *sorted(OTHER_VARIABLES)]
    ending = variable.removeprefix(PREFIX.rstrip("_"))
    return next((name for name in known if name.endswith(ending)), None) or closest(variable, known)


def closest(word: str, words: Iterable[str]) -> str | None:
    """The one that looks most like it, if any does."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(words), 1, LIKENESS_MIN)
    return found[0] if found else None


def _explained(values: Values, path: Path | None, environment: Mapping[str, str]) -> str | None:
    """What is wrong with the first value that is, where it was written, and what it should be."""
    for section, keys in values.items():
        if section not in SECTIONS:
            return f"{section} is no section{_meant(closest(section, SECTIONS))} ({path})"
        if not isinstance(keys, dict):
            return f"{section} must be a section, [{section}] with its keys below it ({path})"
        fields = {part.name: part for part in msgspec.structs.fields(SECTIONS[section])}
        for key, value in keys.items():
            if key not in fields:
                like = closest(key, fields)
                meant = _meant(f"{section}.{like}" if like else None)
                return f"{section}.{key} is no setting{meant} ({path})"
            try:
                msgspec.convert(value, fields[key].type, strict=False)
            except msgspec.ValidationError:
                got = "" if key in SECRETS else f", not {value!r}"
                where = origin(section, key, path, environment)
                return f"{section}.{key} must be {_wanted(fields[key].type)}{got} ({where})"
    return None


def _meant(name: str | None) -> str:
    return f"; did you mean {name}?" if name else ""


def _wanted(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is list:
        return "a list of strings"
    return "a string" if kind is str else "a whole number"


def check_roles(config: Config) -> None:
    """ConfigError unless a node with this configuration can play its roles."""
    roles = config.cluster.roles
    for role in roles:
        if role in ROLES_LATER:
            raise ConfigError(
                f"cluster.roles: the role {role} is not there yet; choose of {', '.join(ROLES)}"
            )
        if role not in ROLES:
            raise ConfigError(f"cluster.roles: there is no role {role!r}; choose of {', '.join(ROLES)}")
    if not roles:
        raise ConfigError(f"cluster.roles is empty: choose of {', '.join(ROLES)}")
    if config.store.engine == "sqlite" and set(roles) != set(ROLES_DEFAULT):
        raise ConfigError(
            f"cluster.roles = {','.join(roles)} needs a store that nodes share:"
            ' set store.engine = "dynamodb", or leave the roles out'
        )
    needs_others = set(roles) != {"sequencer"} and not {"gateway", "ingest"} <= set(roles)
    if needs_others and not config.redis.url:
        raise ConfigError(
            f"cluster.roles = {','.join(roles)} needs other nodes: set redis.url, where they find each other"
        )


def split(text: str) -> list[str]:
    """A list as it is written in one word: by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _overlay(values: dict[str, Any], environment: Mapping[str, str]) -> list[str]:
    known = _variables()
    unknown = []
    for name, text in environment.items():
        if name in known:
            section, key = known[name]
            value: object = split(text) if key in LISTS else text
            if isinstance(values.setdefault(section, {}), dict):
                values[section][key] = value
        elif name.startswith(PREFIX) and name not in OTHER_VARIABLES and not name.startswith(TEST_PREFIXES):
            unknown.append(name)
    return sorted(unknown)


LISTS = frozenset({"hosts", "origins", "proxies", "brokers", "roles", "sequencers"})


SECRETS = frozenset({"secret", "password", "url"})
"""What these keys hold is never repeated to anybody."""

SECTIONS: dict[str, type[Struct]] = {
    "server": Server,
    "store": Store,
    "dynamodb": Dynamodb,
    "redis": Redis,
    "kafka": Kafka,
    "bus": Bus,
    "cluster": Cluster,
    "accounts": Accounts,
    "limits": Limits,
    "log": Log,
}


def sections() -> dict[str, list[str]]:
    """Every section and its keys."""
    return {name: [key.name for key in msgspec.structs.fields(part)] for name, part in SECTIONS.items()}


def _variables() -> dict[str, tuple[str, str]]:
    """Every setting's variable, with its section and key."""
    return {variable_of(section, key): (section, key) for section, keys in sections().items() for key in keys}


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
