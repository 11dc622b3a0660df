"""Configuration: one TOML file, every key also as PARLEY_SECTION_KEY in the environment."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from parley.core.client_address import LOOPBACK, Network, parse_networks
from parley.core.fanout import READ_ABOVE_MEMBERS, WRITE_BELOW_MEMBERS
from parley.core.jwt_claims import HMAC, KEY_TYPES, LEEWAY_SECONDS, LEEWAY_SECONDS_MAX
from parley.core.retry import MAX_RETRIES
from parley.errors import ConfigError
from parley.wire.limits import MIB

PREFIX = "PARLEY_"
OTHER_VARIABLES = frozenset({"PARLEY_DATA", "PARLEY_CONFIG", "PARLEY_URL", "PARLEY_TOKEN", "PARLEY_CA"})
"""Read by the command line itself."""
TEST_PREFIXES = ("PARLEY_TEST_", "PARLEY_SIMULATE_", "PARLEY_SERVICES_")
PASSWORD_CHARS_MIN_EXPOSED = 8
FILE_BYTES_MAX = 16 * 1024 * MIB
PORT_MAX = 65_535
LIKENESS_MIN = 0.75
"""How similar (0 to 1) an unknown name must be to a known one for a suggestion."""
ROLES = ("gateway", "ingest", "delivery", "push", "archiver", "search", "sequencer")
ROLES_DEFAULT = ("gateway", "ingest", "delivery", "push", "archiver", "search")
ROLES_OPTIONAL = frozenset({"push", "archiver", "search"})
"""A server on one machine may do without these."""


class ServerConfig(Struct, forbid_unknown_fields=True):
    """Where the server listens. `name`: what people see it called.

    `origins`: web origins that may connect, beside the server's own. `proxies`: addresses and
    networks of proxies that may name a client's address.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    name: str = "Parley"
    data: str = "./data"
    hosts: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    proxies: list[str] = field(default_factory=list)


class TlsConfig(Struct, forbid_unknown_fields=True):
    """`certificate`: a PEM file with the chain; empty for none. `key`: empty if it is in the same file."""

    certificate: str = ""
    key: str = ""
    min_version: Literal["1.2", "1.3"] = "1.2"


class MetricsConfig(Struct, forbid_unknown_fields=True):
    """`listen`: host:port of a listener for metrics and health alone, without tokens; empty for none."""

    listen: str = ""


class ConsoleConfig(Struct, forbid_unknown_fields=True):
    """Where the console for operators is served. `enabled`: empty for a server that is not exposed, and for
    one with `listen` or `host`. `listen`: host:port of a listener of its own. `host`: the only name that it
    is served at. `read_only`: from it nothing can be changed.
    """

    enabled: bool | None = None
    listen: str = ""
    host: str = ""
    read_only: bool = False


class StoreConfig(Struct, forbid_unknown_fields=True):
    """`allocator`: what allocates sequences when sequencing is two_phase on a shared engine.

    `store`: the counters of the store itself. `dynamodb` is an older name of that.
    """

    engine: Literal["sqlite", "dynamodb", "cassandra"] = "sqlite"
    sequencing: Literal["atomic", "two_phase"] = "atomic"
    allocator: Literal["store", "dynamodb", "redis", "sequencer"] = "store"

    @property
    def is_shared(self) -> bool:
        """Whether nodes can share it: it is not a folder of one machine."""
        return self.engine != "sqlite"


class DynamodbConfig(Struct, forbid_unknown_fields=True):
    """`endpoint`: empty for AWS itself. `prefix`: before each table's name."""

    endpoint: str = ""
    region: str = ""
    prefix: str = ""


class CassandraConfig(Struct, forbid_unknown_fields=True):
    """`contact_points`: hosts of the cluster to start from. `local_dc`: the datacenter of this node.

    `replicas`: of each row in that datacenter, in a keyspace that is created. `ca`: a PEM file with the
    authorities whose certificates are trusted; with it, or with `tls`, connections are encrypted. `any_name`:
    whatever name or address a certificate of these authorities is for.
    """

    contact_points: list[str] = field(default_factory=lambda: ["127.0.0.1"])
    port: int = 9042
    keyspace: str = "parley"
    local_dc: str = "datacenter1"
    replicas: int = 3
    username: str = ""
    password: str = ""
    tls: Literal["off", "on", "any_name"] = "off"
    ca: str = ""


class RedisConfig(Struct, forbid_unknown_fields=True):
    """`url`: redis:// or rediss://, with its password if there is one; empty for none.

    `prefix`: before each key and channel.
    """

    url: str = ""
    prefix: str = ""


class KafkaConfig(Struct, forbid_unknown_fields=True):
    """`brokers`: host:port; none keeps the bus inside the process. `prefix`: before each topic's name."""

    brokers: list[str] = field(default_factory=list)
    prefix: str = ""
    security: Literal["plaintext", "tls", "sasl_tls"] = "plaintext"
    username: str = ""
    password: str = ""
    ca: str = ""
    partitions: int = 12
    replication: int = 1


class BusConfig(Struct, forbid_unknown_fields=True):
    """`ack`: whether a send is answered once it is stored, or once its event is on the bus as well.

    `ingest`: whether drafts go to the node that appends at once, or through a topic in front of it.
    """

    ack: Literal["stored", "published"] = "stored"
    ingest: Literal["direct", "bus"] = "direct"


class ClusterConfig(Struct, forbid_unknown_fields=True):
    """Where other nodes reach this one, and the secret that they all share.

    `advertise`: the address that others use, if it is not the one bound. `accepted_secret`: another one that
    is believed too, while the secret is changed. `tls_certificate`, `tls_key`, `tls_ca`: files, all or none.
    `sequencers`: base addresses.
    """

    node: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    secret: str = ""
    accepted_secret: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    roles: list[str] = field(default_factory=lambda: list(ROLES_DEFAULT))
    sequencers: list[str] = field(default_factory=list)


class AccountsConfig(Struct, forbid_unknown_fields=True):
    """`registration`: "loopback" is open for direct requests unless the server is exposed, "invite" needs a
    link that an operator made."""

    registration: Literal["loopback", "open", "closed", "invite"] = "loopback"
    password_letters_min: int | None = None


class JwtConfig(Struct, forbid_unknown_fields=True):
    """People of your own login, by JSON Web Tokens. Off unless something is set here.

    `algorithms`: those that are believed; HS256 with a secret and RS256 without, if empty. One of `secret`,
    `public_key` (PEM, or a file with it) and `jwks_url`. `user_claim`: which claim says who it is.
    """

    algorithms: list[str] = field(default_factory=list)
    secret: str = ""
    public_key: str = ""
    jwks_url: str = ""
    issuer: str = ""
    audience: str = ""
    user_claim: str = "sub"
    leeway_seconds: int = LEEWAY_SECONDS

    @property
    def is_set(self) -> bool:
        return self != JwtConfig()

    @property
    def pinned_algorithms(self) -> list[str]:
        return self.algorithms or ["HS256" if self.secret else "RS256"]


class LimitsConfig(Struct, forbid_unknown_fields=True):
    """`rates`: "auto" is off for direct requests unless the server is exposed.

    `connections_per_user` and `connections_per_address`: at the same time on one node, where rates are on.
    """

    rates: Literal["auto", "on", "off"] = "auto"
    connections_per_user: int = 50
    connections_per_address: int = 1_000


class DeliveryConfig(Struct, forbid_unknown_fields=True):
    """`max_retries`: of a delivery that failed, before it is a dead letter. `too_old_seconds`: older messages
    are not delivered. `write_below`, `read_above`: chats with fewer members than the one are fanned out on
    write, with more than the other on read; an operator may choose for each chat.
    """

    max_retries: int = MAX_RETRIES
    too_old_seconds: int = 604_800
    write_below: int = WRITE_BELOW_MEMBERS
    read_above: int = READ_ABOVE_MEMBERS


class PushConfig(Struct, forbid_unknown_fields=True):
    """Who brings notifications to devices. A provider without its settings is off; webhooks need none.

    `apns_key`: a .p8 file, with its id, its team and the app's bundle id as topic. `fcm_credentials`: the
    JSON file of a service account. `vapid_private_key`: 32 bytes in base64url; empty for one that the first
    node makes. `vapid_subject`: a mailto: or https: address for push services; Apple's wants one.
    `allowed_networks`: what the addresses of devices, which people choose, may lead to beside public ones.
    """

    apns_key: str = ""
    apns_key_id: str = ""
    apns_team_id: str = ""
    apns_topic: str = ""
    apns_endpoint: str = "https://api.push.apple.com"
    fcm_credentials: str = ""
    fcm_endpoint: str = "https://fcm.googleapis.com"
    vapid_private_key: str = ""
    vapid_subject: str = ""
    allowed_networks: list[str] = field(default_factory=list)


class WebhooksConfig(Struct, forbid_unknown_fields=True):
    """`allowed_networks`: what webhooks may reach beside public addresses; plain http only there.

    `give_up_hours`: how long a delivery is retried before it is a dead letter.
    """

    allowed_networks: list[str] = field(default_factory=list)
    give_up_hours: int = 24


class ArchiveConfig(Struct, forbid_unknown_fields=True):
    """The cold tier. `target`: a folder, relative to `server.data`, or s3://bucket/prefix; empty for none.

    `after_days`: entries older than this are moved there. `endpoint`: of S3, empty for AWS itself; `region`
    and the keys are taken from the environment if they are empty. `cache_mb`: of archived entries in memory.
    """

    target: str = ""
    after_days: int = 30
    interval_seconds: int = 3_600
    cache_mb: int = 128
    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""


class BackupConfig(Struct, forbid_unknown_fields=True):
    """`target`: where the backups of this server are, a folder or s3://bucket/prefix, so that operators see
    them. Empty: nobody has said."""

    target: str = ""


class RetentionConfig(Struct, forbid_unknown_fields=True):
    """`days`: how long bodies of messages are kept, unless an operator decides otherwise for a chat; 0: for
    ever. They are removed by `parley retention apply`, and every day if `is_automatic`."""

    days: int = 0
    is_automatic: bool = False


class MessagesConfig(Struct, forbid_unknown_fields=True):
    """`edit_window_seconds`: how long after it was sent a message may be edited; 0 for ever."""

    edit_window_seconds: int = 0


class SearchConfig(Struct, forbid_unknown_fields=True):
    """`enabled`: whether messages are indexed and can be searched. On a shared store the nodes of the role
    `search` have the index."""

    enabled: bool = True


class AttachmentsConfig(Struct, forbid_unknown_fields=True):
    """Files that messages refer to. `target`: a folder, relative to `server.data`, or s3://bucket/prefix;
    empty for `attachments` in `server.data` on one machine, and for none on a store that nodes share.

    `max_bytes`: of one file. `bytes_per_user`: of all files of a person; 0 for any. Types are named whole, or
    as `image/*`. `upload_hours`: how long an upload may take. `unused_hours`: how long a file is kept that no
    message refers to. `url_seconds`: how long an address to read a file is valid. The rest as for `archive`.
    """

    target: str = ""
    max_bytes: int = 256 * MIB
    bytes_per_user: int = 4 * 1024 * MIB
    types_allowed: list[str] = field(default_factory=lambda: ["*/*"])
    types_denied: list[str] = field(default_factory=list)
    upload_hours: int = 24
    unused_hours: int = 24
    url_seconds: int = 900
    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""


class LogConfig(Struct, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    format: Literal["json", "text"] = "json"


class Config(Struct, forbid_unknown_fields=True):
    server: ServerConfig = field(default_factory=ServerConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    dynamodb: DynamodbConfig = field(default_factory=DynamodbConfig)
    cassandra: CassandraConfig = field(default_factory=CassandraConfig)
    redis: RedisConfig = field(default_factory=RedisConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    bus: BusConfig = field(default_factory=BusConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    accounts: AccountsConfig = field(default_factory=AccountsConfig)
    auth_jwt: JwtConfig = field(default_factory=JwtConfig, name="auth.jwt")
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    webhooks: WebhooksConfig = field(default_factory=WebhooksConfig)
    push: PushConfig = field(default_factory=PushConfig)
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    backup: BackupConfig = field(default_factory=BackupConfig)
    messages: MessagesConfig = field(default_factory=MessagesConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    attachments: AttachmentsConfig = field(default_factory=AttachmentsConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.server.host)

    @property
    def is_routed(self) -> bool:
        """Whether nodes can route entries to each other."""
        return bool(self.store.is_shared and self.kafka.brokers and self.redis.url)

    @property
    def scheme(self) -> str:
        """How clients speak to the server's port. A sequencer is spoken to by nodes alone."""
        is_served = self.tls.certificate and self.cluster.roles != ["sequencer"]
        return "https" if is_served else "http"

    @property
    def is_exposed(self) -> bool:
        """Whether others than the people at this machine may reach the server.

        Its address may let them in, or a setting says that a proxy does. Then no request is trusted for
        coming from this machine: a proxy on it may not say for whom it asks.
        """
        server = self.server
        is_proxied = server.hosts or server.origins or server.proxies or self.console.host
        is_open = self.console_address is not None and not is_loopback(self.console_address[0])
        return bool(not self.is_loopback or is_open or is_proxied or self.tls.certificate)

    @property
    def trusted_proxies(self) -> tuple[Network, ...]:
        """Whose forwarding headers name the client.

        Without `server.proxies` those on this machine, if only this machine can connect.
        """
        if self.server.proxies:
            return parse_networks(tuple(self.server.proxies))
        return LOOPBACK if self.is_loopback else ()

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the listener for metrics, if there is one."""
        return parse_listen(self.metrics.listen) if self.metrics.listen else None

    @property
    def console_address(self) -> tuple[str, int] | None:
        """Host and port of the listener for the console, if there is one."""
        console = self.console
        is_apart = console.listen and console.enabled is not False
        return parse_listen(console.listen, "console.listen") if is_apart else None

    def serves_console(self, host: str) -> bool:
        """Whether the console is served at this name, by the listener for everybody."""
        console = self.console
        if console.enabled is False or console.listen:
            return False
        return host == console.host if console.host else bool(console.enabled or not self.is_exposed)

    @property
    def password_chars_min(self) -> int:
        """Any password will do on a private machine; not where others may try to guess it."""
        chosen = self.accounts.password_letters_min
        if chosen is not None:
            return chosen
        return PASSWORD_CHARS_MIN_EXPOSED if self.is_exposed else 1

    @property
    def refuses_common_passwords(self) -> bool:
        """Where anybody may register, and wherever passwords must have some length."""
        is_open = self.accounts.registration in ("open", "invite")
        return is_open or self.password_chars_min >= PASSWORD_CHARS_MIN_EXPOSED


def risks(config: Config) -> list[str]:
    """What an operator should know before people use a server with this configuration, a sentence each."""
    found = []
    server, listen = config.server, config.metrics.listen
    is_plain = config.scheme == "http" and not config.is_loopback and not server.proxies
    if is_plain and "gateway" in config.cluster.roles:
        found.append(
            f"no TLS on {server.host}: whoever is on the way can read passwords, tokens and messages;"
            " set tls.certificate, or bind to loopback behind a proxy that does TLS"
        )
    if config.metrics_address is not None and not is_loopback(config.metrics_address[0]):
        found.append(
            f"metrics.listen is {listen}: whoever reaches that address reads the metrics, no token needed"
        )
    if config.is_exposed and config.console.enabled and not (config.console.listen or config.console.host):
        found.append(
            "console.enabled: the console has the address of the chat, and an error in a page of one reaches"
            " the other; give it console.host or console.listen"
        )
    return found


Values = dict[str, Any]
"""Settings as written: by section, then by key."""


def load(
    path: Path | None, environment: Mapping[str, str] = os.environ, beneath: Values | None = None
) -> tuple[Config, list[str]]:
    """The configuration, and the PARLEY_* variables that mean nothing.

    The environment overrides the file, and the file overrides `beneath`.
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
    for section, key, check in CHECKS:
        try:
            check(config)
        except ConfigError as error:
            raise ConfigError(f"{error} ({origin(section, key, path, environment)})") from error
    return config, unknown


def origin(section: str, key: str, path: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """Where a setting was written: its variable, or the file."""
    variable = variable_of(section, key)
    return variable if variable in environment or path is None else str(path)


def variable_of(section: str, key: str) -> str:
    return f"{PREFIX}{section}_{key}".replace(".", "_").upper()


def suggestion(variable: str) -> str | None:
    """The known variable that an unknown one probably meant."""
    known = [*_variables(), *sorted(OTHER_VARIABLES)]
    ending = variable.removeprefix(PREFIX.rstrip("_"))
    return next((name for name in known if name.endswith(ending)), None) or closest(variable, known)


def closest(word: str, words: Iterable[str]) -> str | None:
    """The most similar of `words`, if any is similar."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(words), 1, LIKENESS_MIN)
    return found[0] if found else None


def _explained(values: Values, path: Path | None, environment: Mapping[str, str]) -> str | None:
    """What is wrong with the first bad value, where it was written, and what it should be."""
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
    if kind in (bool, bool | None):
        return "true or false"
    return "a string" if kind is str else "a whole number"


def check_roles(config: Config) -> None:
    """ConfigError unless a node with this configuration can have its roles."""
    roles = config.cluster.roles
    for role in roles:
        if role not in ROLES:
            raise ConfigError(f"cluster.roles: there is no role {role!r}; choose of {', '.join(ROLES)}")
    if not roles:
        raise ConfigError(f"cluster.roles is empty: choose of {', '.join(ROLES)}")
    if not config.store.is_shared and {*roles, *ROLES_OPTIONAL} != set(ROLES_DEFAULT):
        raise ConfigError(
            f"cluster.roles = {','.join(roles)} needs a store that nodes share:"
            ' set store.engine = "dynamodb" or "cassandra", or leave the roles out'
        )
    needs_others = set(roles) != {"sequencer"} and not {"gateway", "ingest"} <= set(roles)
    if needs_others and not config.redis.url:
        raise ConfigError(
            f"cluster.roles = {','.join(roles)} needs other nodes: set redis.url, where they find each other"
        )


def _check_proxies(config: Config) -> None:
    try:
        parse_networks(tuple(config.server.proxies))
    except ValueError as error:
        raise ConfigError(f"server.proxies: {error}") from error


def _check_networks(section: str) -> Callable[[Config], None]:
    def check(config: Config) -> None:
        try:
            parse_networks(tuple(getattr(config, section).allowed_networks))
        except ValueError as error:
            raise ConfigError(f"{section}.allowed_networks: {error}") from error

    return check


def _check_not_negative(section: str, key: str) -> Callable[[Config], None]:
    def check(config: Config) -> None:
        if getattr(getattr(config, section), key) < 0:
            raise ConfigError(f"{section}.{key} must be 0 or more")

    return check


def _check_metrics(config: Config) -> None:
    if config.metrics.listen:
        parse_listen(config.metrics.listen)


def _check_console(config: Config) -> None:
    if config.console.listen:
        parse_listen(config.console.listen, "console.listen")
    if config.console.listen and config.console.host:
        raise ConfigError("console.listen and console.host: set one of them; both say where the console is")


def _check_tls(config: Config) -> None:
    if config.tls.key and not config.tls.certificate:
        raise ConfigError("tls.key needs tls.certificate: set both, or neither")


def _check_fanout(config: Config) -> None:
    delivery = config.delivery
    if not 0 <= delivery.write_below <= delivery.read_above:
        raise ConfigError("delivery.write_below must be from 0 to delivery.read_above")


def _check_apns(config: Config) -> None:
    push = config.push
    given = [push.apns_key, push.apns_key_id, push.apns_team_id, push.apns_topic]
    if any(given) and not all(given):
        raise ConfigError("push.apns_key, apns_key_id, apns_team_id and apns_topic: set all of them, or none")


def _check_archive(config: Config) -> None:
    archive = config.archive
    if archive.after_days < 0 or archive.interval_seconds < 1 or archive.cache_mb < 1:
        raise ConfigError("archive.after_days must be 0 or more, interval_seconds and cache_mb 1 or more")
    if bool(archive.access_key_id) != bool(archive.secret_access_key):
        raise ConfigError("archive.access_key_id and archive.secret_access_key: set both, or neither")


def _check_jwt(config: Config) -> None:
    jwt = config.auth_jwt
    if not jwt.is_set:
        return
    if sum(map(bool, (jwt.secret, jwt.public_key, jwt.jwks_url))) != 1:
        raise ConfigError("auth.jwt needs exactly one of secret, public_key and jwks_url")
    if not (jwt.issuer and jwt.audience and jwt.user_claim):
        raise ConfigError("auth.jwt needs issuer and audience: whose tokens are believed, and for whom")
    if any(char.isspace() for char in jwt.issuer):
        raise ConfigError("auth.jwt.issuer has no spaces")
    known = HMAC.keys() if jwt.secret else KEY_TYPES.keys()
    for algorithm in jwt.pinned_algorithms:
        if algorithm not in known:
            kind = "a secret" if jwt.secret else "public keys"
            raise ConfigError(f"auth.jwt.algorithms: with {kind} choose of {', '.join(sorted(known))}")
    bytes_min = max((HMAC.get(algorithm, 0) for algorithm in jwt.pinned_algorithms), default=0)
    if jwt.secret and len(jwt.secret.encode()) < bytes_min:
        raise ConfigError(
            f"auth.jwt.secret must have {bytes_min} bytes or more for its algorithms (RFC 7518)"
        )
    if jwt.jwks_url and urlsplit(jwt.jwks_url).scheme not in ("http", "https"):
        raise ConfigError("auth.jwt.jwks_url must be an https address")
    if not 0 <= jwt.leeway_seconds <= LEEWAY_SECONDS_MAX:
        raise ConfigError(f"auth.jwt.leeway_seconds must be 0 to {LEEWAY_SECONDS_MAX}")


def _check_attachments(config: Config) -> None:
    files = config.attachments
    if not 1 <= files.max_bytes <= FILE_BYTES_MAX:
        raise ConfigError(f"attachments.max_bytes must be 1 to {FILE_BYTES_MAX}")
    if files.bytes_per_user < 0:
        raise ConfigError("attachments.bytes_per_user must be 0 or more")
    if min(files.upload_hours, files.unused_hours, files.url_seconds) < 1:
        raise ConfigError("attachments.upload_hours, unused_hours and url_seconds must be 1 or more")
    if bool(files.access_key_id) != bool(files.secret_access_key):
        raise ConfigError("attachments.access_key_id and attachments.secret_access_key: set both, or neither")
    for pattern in (*files.types_allowed, *files.types_denied):
        if pattern.count("/") != 1 or pattern != pattern.lower():
            raise ConfigError(f"attachments: {pattern} is no type; name them like image/png or image/*")


def _check_ingest(config: Config) -> None:
    if config.bus.ingest == "bus" and not (config.kafka.brokers and config.store.is_shared):
        raise ConfigError(
            'bus.ingest = "bus" needs kafka.brokers and a store that nodes share: the server on one machine'
            " is its own ingest, and has nothing to buffer"
        )


CHECKS = (
    ("bus", "ingest", _check_ingest),
    ("cluster", "roles", check_roles),
    ("server", "proxies", _check_proxies),
    ("webhooks", "allowed_networks", _check_networks("webhooks")),
    ("webhooks", "give_up_hours", _check_not_negative("webhooks", "give_up_hours")),
    ("push", "allowed_networks", _check_networks("push")),
    ("delivery", "max_retries", _check_not_negative("delivery", "max_retries")),
    ("delivery", "write_below", _check_fanout),
    ("push", "apns_key", _check_apns),
    ("archive", "after_days", _check_archive),
    ("retention", "days", _check_not_negative("retention", "days")),
    ("messages", "edit_window_seconds", _check_not_negative("messages", "edit_window_seconds")),
    ("attachments", "max_bytes", _check_attachments),
    ("metrics", "listen", _check_metrics),
    ("console", "listen", _check_console),
    ("tls", "key", _check_tls),
    ("auth.jwt", "issuer", _check_jwt),
)
"""What a value must be beside its type: the key, and what raises ConfigError."""


def parse_listen(text: str, name: str = "metrics.listen") -> tuple[str, int]:
    """Host and port; ConfigError if it is no such pair."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.port is not None and parts.netloc == text and "@" not in text:
            return parts.hostname, parts.port
    raise ConfigError(f"{name} must be host:port, like 127.0.0.1:9100, not {text}")


def split(text: str) -> list[str]:
    """The parts of a list that is separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # most servers have no such file

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for section in SECTIONS:
        outer, dot, inner = section.partition(".")
        if dot and isinstance(values.get(outer), dict) and inner in values[outer]:
            values[section] = values[outer].pop(inner)
            if not values[outer]:
                del values[outer]
    return values


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


LISTS = frozenset(
    {
        "algorithms",
        "types_allowed",
        "types_denied",
        "allowed_networks",
        "brokers",
        "contact_points",
        "hosts",
        "origins",
        "proxies",
        "roles",
        "sequencers",
    }
)


SECRETS = frozenset(
    {"secret", "accepted_secret", "password", "url", "vapid_private_key", "secret_access_key"}
)
"""The values of these keys are never shown."""

SECTIONS: dict[str, type[Struct]] = {part.encode_name: part.type for part in msgspec.structs.fields(Config)}


def sections() -> dict[str, list[str]]:
    """Every section and its keys."""
    return {name: [key.name for key in msgspec.structs.fields(part)] for name, part in SECTIONS.items()}


def _variables() -> dict[str, tuple[str, str]]:
    """Every setting's variable, with its section and key."""
    return {variable_of(section, key): (section, key) for section, keys in sections().items() for key in keys}


@lru_cache(maxsize=1024)  # every request names its host
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
