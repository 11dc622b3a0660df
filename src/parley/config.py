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
TEST_PREFIXES = ("PARLEY_TEST_", "PARLEY_SIMULATE_", "PARLEY_SERVICES_")
PASSWORD_LETTERS_MIN_EXPOSED = 8
PORT_MAX = 65_535
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


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[Config, list[str]]:
    """The configuration, and the PARLEY_* variables that mean nothing."""
    values = _read(path) if path is not None else {}
    unknown = _overlay(values, environment)
    try:
        config = msgspec.convert(values, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the configuration is not valid: {error}") from error
    for name, port in (("server", config.server.port), ("cluster", config.cluster.port)):
        if not 0 <= port <= PORT_MAX:
            raise ConfigError(f"{name}.port must be 0 to {PORT_MAX}, not {port}")
    check_roles(config)
    return config, unknown


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
    known = {f"{PREFIX}{s}_{k}".upper(): (s, k) for s, keys in sections().items() for k in keys}
    unknown = []
    for name, text in environment.items():
        if name in known:
            section, key = known[name]
            value: object = split(text) if key in LISTS else text
            values.setdefault(section, {})[key] = value
        elif name.startswith(PREFIX) and name not in OTHER_VARIABLES and not name.startswith(TEST_PREFIXES):
            unknown.append(name)
    return sorted(unknown)


LISTS = frozenset({"hosts", "origins", "proxies", "brokers", "roles", "sequencers"})


def sections() -> dict[str, list[str]]:
    """Every section and its keys."""
    return {
        name: [key.name for key in msgspec.structs.fields(part)]
        for name, part in (
            ("server", Server),
            ("store", Store),
            ("dynamodb", Dynamodb),
            ("redis", Redis),
            ("kafka", Kafka),
            ("bus", Bus),
            ("cluster", Cluster),
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
