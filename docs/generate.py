"""Writes the generated parts of the pages, and what clients are made from, out of the code: `make docs`.

A part stands between two markers and is replaced as a whole; the prose around it is written by hand:

    <!-- generated: limits (make docs) -->
    …
    <!-- end of limits -->

tests/tidy/test_docs.py fails when a part is stale, when a frame has no part, and when a key has no meaning.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct, inspect

from docs import materials, typescript
from docs.engine_contract import contract_suites, dynamodb_tables, engine_importers, engine_ports
from docs.job_table import jobs
from docs.structs import answers_of, by_name, fields_of, structs_within, tag_of
from docs.tables import code, table
from parley import config, errors
from parley.app.kafka import TOPICS
from parley.bus.drafts import STORE
from parley.core import append, rates
from parley.errors import Refusal
from parley.gateway import scopes, server
from parley.gateway.api import ROUTES
from parley.gateway.routes import Route, alternatives
from parley.gateway.system import OPERATIONS
from parley.model import Scope
from parley.telemetry import Metrics
from parley.wire import codes, frames, limits
from parley.wire.bodies import Problem
from tests.mutants import page as mutants_page
from tests.mutants.faults import all_faults

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "docs/PROTOCOL.md",
    "docs/OPERATING.md",
    "docs/install.md",
    "docs/configure.md",
    "docs/runbooks.md",
    "docs/ARCHITECTURE.md",
    "docs/adding-an-engine.md",
    "docs/cluster.md",
    "docs/the-log-on-dynamodb.md",
    "docs/jobs.md",
    "docs/fan-out.md",
    "docs/post-from-your-backend.md",
)
VECTORS = ROOT / "tests/wire_vectors"
PART = re.compile(
    r"<!-- generated: (?P<name>[\w.]+) \(make docs\) -->\n.*?<!-- end of (?P=name) -->", re.DOTALL
)

TOKENS = {"nothing": "no", "token": "yes", "operator": "an operator's"}
CHAT_NAMES = ("chat_id", "conversation_id", "conv_id")
ENVELOPE = ("id", "re")
TOLD_ELSEWHERE = {frames.Entry}
"""Structs with a section of their own."""

CONFIGURATION = {
    "server.host": "The address to listen on. On a loopback address, direct requests may register, read"
    " `/metrics` and are not rate limited, unless the server is [exposed](expose.md#an-exposed-server).",
    "server.port": "The port; 0 takes a free one, and the ready line names it.",
    "server.name": "What people see the server called, on the page where they sign in.",
    "server.data": "The data folder. `PARLEY_DATA` and `--data` mean the same and win.",
    "server.hosts": "Names that a request's `Host` may have besides loopback names and `server.host`."
    " When empty on another address than loopback, any is accepted.",
    "server.proxies": "Addresses and networks (10.0.0.0/8) of proxies that may name a client's address."
    " When empty on a loopback address, a proxy on this machine may.",
    "server.origins": "Web origins (`https://chat.example`) that may open a WebSocket and read answers,"
    " beside the server's. One makes this [an exposed server](expose.md#an-exposed-server): registration"
    " closes, `/metrics` needs a token, rates hold.",
    "tls.certificate": "A PEM file with the certificate and its chain. The server speaks"
    " [TLS](expose.md#tls) then.",
    "tls.key": "A PEM file with the key, unencrypted; empty if it is in the file of the certificate.",
    "tls.min_version": "The oldest version of TLS that is spoken.",
    "metrics.listen": "`host:port` of a [listener](OPERATING.md#metrics) for metrics and health alone,"
    " without tokens. Then `/metrics` on the server's own port always needs an operator's token.",
    "console.enabled": "Whether [the console](web-pages.md#where-the-console-is) is served. Empty: on a"
    " server that is not exposed, and where `console.listen` or `console.host` is set.",
    "console.listen": "`host:port` of a listener for the console alone, with the API that it uses.",
    "console.host": "The name at which the console is served, and nowhere else. Its requests come through a"
    " proxy, so this makes an exposed server.",
    "console.read_only": "Whether operators can only look from the console. Commands and API tokens still"
    " change things.",
    "store.engine": "Where the data is: in a file of this machine, or in tables that many nodes share.",
    "store.sequencing": "How positions are allocated: [The log](the-log.md#two-ways-to-take-a-number).",
    "store.allocator": "What allocates the numbers of `two_phase` on a store that nodes share: its own"
    " counters (`store`, formerly called `dynamodb`), Redis, or a Sequence Service.",
    "dynamodb.endpoint": "Where DynamoDB is; empty for AWS in `dynamodb.region`.",
    "dynamodb.region": "The AWS region; empty takes the one of the credential chain.",
    "dynamodb.prefix": "Put before the name of each table, so that several deployments share an account.",
    "cassandra.contact_points": "Hosts of the cluster that a node connects to first.",
    "cassandra.port": "The port of the native protocol, on every host.",
    "cassandra.keyspace": "The keyspace, which `parley store init` creates.",
    "cassandra.local_dc": "The datacenter that decides conditions: the same for"
    " [all nodes](the-log-on-cassandra.md#what-was-acknowledged-is-read).",
    "cassandra.replicas": "Replicas of each row in that datacenter, of a keyspace that is created.",
    "cassandra.username": "The user; empty if the cluster asks for none.",
    "cassandra.password": "The user's password. Better given as `PARLEY_CASSANDRA_PASSWORD`.",
    "cassandra.tls": "Whether connections to the cluster are encrypted. A node's certificate must name the"
    " address that it is reached by; with `any_name` it only has to come from `cassandra.ca`.",
    "cassandra.ca": "A PEM file with the authorities of the cluster's certificates; empty trusts those of"
    " this machine. Turns TLS on.",
    "redis.url": "`redis://` or `rediss://` (TLS); empty keeps ephemeral state in the process.",
    "redis.prefix": "Put before each key and channel, so that several deployments share a database.",
    "kafka.brokers": "Brokers to connect to first, `host:port`; empty keeps the bus in the process.",
    "kafka.prefix": "Put before the name of each topic.",
    "kafka.security": "How to connect to brokers; `sasl_tls` is SCRAM-SHA-512 over TLS.",
    "kafka.username": "For `sasl_tls`.",
    "kafka.password": "For `sasl_tls`; better given as `PARLEY_KAFKA_PASSWORD`.",
    "kafka.ca": "A file with the authorities that brokers' certificates are checked against.",
    "kafka.partitions": "Partitions of a topic that Parley creates; fixed from then on.",
    "kafka.replication": "Replicas of a topic that Parley creates: 3 outside of tests.",
    "bus.ack": "Whether a send is answered once it is stored, or once its event is on the bus, too.",
    "bus.ingest": "Whether drafts go straight to the node that appends, or [through Kafka](ingest.md) first.",
    "cluster.node": "This node's name; empty creates a new one at each start.",
    "cluster.host": "The address that other nodes' calls are taken on.",
    "cluster.port": "The port for them; 0 picks a free one.",
    "cluster.advertise": "The base address that others use for this node, if not the bound one.",
    "cluster.secret": "What the keys of all nodes are derived from; required on a store that"
    " nodes share. Better given as `PARLEY_CLUSTER_SECRET`.",
    "cluster.accepted_secret": "Another secret that is believed too, while [the secret is changed]"
    "(expose.md#the-secret-of-a-cluster).",
    "cluster.tls_certificate": "A file with this node's certificate: nodes then speak TLS with each other,"
    " and both sides show one. All three or none.",
    "cluster.tls_key": "The file with its key.",
    "cluster.tls_ca": "A file with the authority that certifies the nodes of this cluster, and nothing else.",
    "cluster.roles": f"What this node [does](cluster.md): {', '.join(map(code, config.ROLES))}.",
    "cluster.sequencers": 'Base addresses of Sequence Services, for `store.allocator = "sequencer"`.',
    "accounts.registration": "Who may register: all clients, none, those with a [link](invite-links.md), or"
    " direct requests to a loopback address unless the server is [exposed](expose.md#an-exposed-server).",
    "accounts.password_letters_min": "The shortest password; unset means 8 on an"
    " [exposed](expose.md#an-exposed-server) server, else 1.",
    "auth.jwt.algorithms": "Which algorithms are believed in a [JWT](your-users.md); if empty HS256 with a"
    " secret, else RS256.",
    "auth.jwt.secret": "What your backend signs with, 32 bytes or more. One of `secret`, `public_key` and"
    " `jwks_url`.",
    "auth.jwt.public_key": "The public key of your backend: PEM, or a file with it.",
    "auth.jwt.jwks_url": "Where an issuer publishes its keys; public and https, or in"
    " `webhooks.allowed_networks`.",
    "auth.jwt.issuer": "Whose tokens are believed (`iss`); needed.",
    "auth.jwt.audience": "For whom they must be (`aud`); needed.",
    "auth.jwt.user_claim": "Which claim says who it is.",
    "auth.jwt.leeway_seconds": "How far the clocks of issuer and server may be apart, up to 300.",
    "limits.rates": "Whether the [rates](#limits-and-rates) hold; `auto` spares direct requests to loopback"
    " unless the server is [exposed](expose.md#an-exposed-server).",
    "limits.connections_per_user": "WebSocket connections of a user on one node, where rates hold.",
    "limits.connections_per_address": "WebSocket connections of an address on one node, where rates hold.",
    "delivery.max_retries": "Retries of a [notification](push.md#what-is-guaranteed),"
    " and of a replay, before it is a dead letter.",
    "delivery.too_old_seconds": "Older messages are not delivered any more.",
    "delivery.write_below": "Chats with fewer members than this are fanned out on"
    " [write](push.md#strategies-by-size).",
    "delivery.read_above": "Chats with more members than this are fanned out on"
    " [read](push.md#strategies-by-size).",
    "push.apns_key": "A signing key of [APNs](push.md#apns), a .p8 file; empty for none.",
    "push.apns_key_id": "The id of that key.",
    "push.apns_team_id": "The team that the key belongs to.",
    "push.apns_topic": "The bundle id of the app.",
    "push.apns_endpoint": "Apple's server; for apps in development https://api.sandbox.push.apple.com.",
    "push.fcm_credentials": "The JSON file of a service account for [FCM](push.md#fcm); empty for none.",
    "push.fcm_endpoint": "Google's server.",
    "push.vapid_private_key": "The private key of [Web Push](push.md#web-push): 32 bytes in base64url. When"
    " empty, the first node makes one and the store keeps it.",
    "push.vapid_subject": "How push services reach you: a `mailto:` or `https:` address. Apple's wants one.",
    "archive.target": "Where [old entries](cold-tier.md) are moved: a folder, relative to `server.data`, or"
    " `s3://bucket/prefix`; empty for none.",
    "archive.after_days": "How old an entry must be to be moved; 0 is allowed.",
    "archive.interval_seconds": "The pause between two runs.",
    "archive.cache_mb": "How much of what was read from there is kept in memory, in MiB.",
    "archive.endpoint": "An S3 server; empty for AWS itself.",
    "archive.region": "Its region; empty: as the environment says.",
    "archive.access_key_id": "Its key; empty: as the environment or the machine's role says.",
    "archive.secret_access_key": "The secret of that key.",
    "backup.target": "Where the [backups](backup-and-migration.md) of this server are, a folder relative to"
    " `server.data` or `s3://bucket/prefix`: for [operators](operators.md) to see them.",
    "retention.days": "How many days [bodies are kept](retention.md), unless an operator decides otherwise"
    " for a chat; 0: for ever.",
    "retention.is_automatic": "`true` removes what is older every day; else `parley retention apply` does.",
    "attachments.target": "Where [files of messages](attachments.md) are: a folder, relative to"
    " `server.data`, or `s3://bucket/prefix`; empty for `attachments` there, and for none on a store that"
    " nodes share.",
    "attachments.max_bytes": "The largest file.",
    "attachments.bytes_per_user": "How much room all files of a person may take; 0: any.",
    "attachments.types_allowed": "Types of files that are taken, whole or as `image/*`.",
    "attachments.types_denied": "Types that are not, although they are allowed.",
    "attachments.upload_hours": "How long an upload may take.",
    "attachments.unused_hours": "How long a file is kept that no message refers to.",
    "attachments.url_seconds": "How long an address to read a file from is valid.",
    "attachments.endpoint": "An S3 server; empty for AWS itself.",
    "attachments.region": "Its region; empty: as the environment says.",
    "attachments.access_key_id": "Its key; empty: as the environment or the machine's role says.",
    "attachments.secret_access_key": "The secret of that key.",
    "messages.edit_window_seconds": "How long [messages may be edited](message-life.md) after they were sent;"
    " 0: for ever.",
    "search.enabled": "`false`: messages are not indexed, and [searches](search.md) are refused.",
    "push.allowed_networks": "What [push webhooks](push.md#register-a-device) of people may reach beside"
    " public addresses; plain http only there. Every person can make the server send requests there.",
    "webhooks.allowed_networks": "What [webhooks](delivery.md#webhooks) may reach beside public addresses;"
    " plain http only there.",
    "webhooks.give_up_hours": "How long a delivery to a [webhook](delivery.md#retries) is retried before it"
    " is a dead letter.",
    "log.level": "`debug` has a line per message.",
    "log.format": "`json` is one object per line, `text` is for people.",
}
ROLES = {
    "gateway": "accepts clients' connections and requests, delivers live",
    "ingest": "appends drafts, its own and those of other nodes",
    "delivery": "[routes](fan-out.md#routing) entries to the nodes whose clients hear them; delivers to"
    " [webhooks](delivery.md); publishes events that a dead node left unpublished",
    "push": "[notifies](push.md) the devices of people who are away",
    "archiver": "moves old entries to the [cold tier](cold-tier.md), and [removes bodies](retention.md)",
    "search": "keeps the [index](search.md) of a share of the chats, and answers searches of them",
    "sequencer": "allocates numbers of `two_phase` for other nodes: the [Sequence Service](sequencing.md)",
}
EXTRAS = {
    "server": "the embedded server and every command on its data folder",
    "cassandra": "the server, and Cassandra as its store",
    "dynamodb": "the server, and DynamoDB as its store",
    "kafka": "the server, and Kafka as its bus",
    "jwt": "the server, and [people of your own login](your-users.md)",
    "push": "the server, and [push](push.md) by APNs, FCM and Web Push; signed webhooks need none of it",
    "redis": "the server, and Redis for what nodes share and may lose",
    "s3": "the server, and backups in an object store",
    "all": "all of it",
}
RATES = {
    "MESSAGES_PER_USER": "messages sent, per user",
    "FRAMES_PER_CONNECTION": "frames, per connection; before `hello`, per address",
    "WORK_PER_USER": "[work](fairness.md#work-is-weighed), per user",
    "REGISTRATIONS_PER_ADDRESS": "registrations, per address",
    "CONNECTIONS_PER_ADDRESS": "WebSocket connections, per address",
    "FAILED_LOGINS": "failed logins, per username and address, and of a session that changes its password",
    "FAILED_LOGINS_PER_ADDRESS": "failed logins, per address",
    "FAILED_LOGINS_PER_ACCOUNT": "failed logins, per username",
    "NEW_CHATS_PER_USER": "chats created, per user",
    "MEMBER_CHANGES_PER_USER": "members added or removed, roles, joining and leaving, per user",
    "CHAT_CHANGES_PER_USER": "titles and modes of read receipts, per user",
    "REPORTS_PER_USER": "[reports](moderation.md) of messages, per user",
    "COST_PER_USER": "cost of HTTP requests, per user",
    "COST_PER_ADDRESS": "cost of HTTP requests without a session, per address",
}


# Types


def type_name(kind: inspect.Type) -> str:
    """A type as a reader of the protocol calls it."""
    match kind:
        case inspect.UnionType(types=types):
            has_whole = any(isinstance(part, inspect.IntType) for part in types)
            shown = [part for part in types if not (has_whole and isinstance(part, inspect.FloatType))]
            named = [type_name(part) for part in shown]
            return " or ".join(dict.fromkeys(named))
        case inspect.ListType(item_type=item):
            return f"list of {type_name(item)}"
        case inspect.DictType(key_type=key, value_type=value):
            return f"object of {type_name(key)} to {type_name(value)}"
        case inspect.StructType(cls=frames.Entry):
            return "[entry](#the-entry)"
        case inspect.StructType(cls=cls):
            return code(cls.__name__)
        case inspect.LiteralType(values=values):
            return " or ".join(code(text) for text in sorted(map(json.dumps, values)))
        case inspect.EnumType(cls=cls):
            return " or ".join(code(text) for text in sorted(json.dumps(one.value) for one in cls))
        case inspect.IntType(ge=int(least)):
            return f"integer ≥ {least}"
        case inspect.RawType():
            return "[entry](#the-entry)"
        case _:
            return PLAIN_TYPES[type(kind)]


PLAIN_TYPES: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.AnyType: "anything",
}


def default_of(field: inspect.Field) -> str:
    """What a field that is left out means."""
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return code(json.dumps(field.default_factory()))
    return "absent" if field.default is msgspec.NODEFAULT else code(json.dumps(field.default))


def presence_of(field: inspect.Field) -> str:
    """Whether the server says it always."""
    return "when it applies" if not field.required and field.default is msgspec.NODEFAULT else "always"


def is_told_elsewhere(name: str, kind: type[Struct]) -> bool:
    """Whether a field needs no row: the envelope, and the other names of a chat."""
    return name in ENVELOPE or (name in CHAT_NAMES[1:] and issubclass(kind, frames.ChatFrame))


def asked(kind: type[Struct]) -> str:
    """The fields of what a client says."""
    rows = [
        (" or ".join(map(code, CHAT_NAMES)), "string", "one is required")
        if field.name == "chat_id" and issubclass(kind, frames.ChatFrame)
        else (code(field.encode_name), type_name(field.type), default_of(field))
        for field in fields_of(kind)
        if not is_told_elsewhere(field.name, kind)
    ]
    return table(("field", "type", "when left out"), rows) if rows else "It has no fields of its own."


def said(kind: type[Struct]) -> str:
    """The fields of what the server says."""
    rows = [
        (code(field.encode_name), type_name(field.type), presence_of(field))
        for field in fields_of(kind)
        if not is_told_elsewhere(field.name, kind)
    ]
    return table(("field", "type", "present"), rows)


# Frames


def frame_part(kind: type[Struct], sender: str) -> str:
    """A frame's fields, and one of its wire vectors as an example."""
    fields = asked(kind) if sender == "client" else said(kind)
    return f"{fields}\n\n```json\n{example_of(kind, sender)}\n```"


def example_of(kind: type[Struct], sender: str) -> str:
    """A wire vector: of a client's frame the fullest, of the server's the first."""
    vectors = json.loads((VECTORS / f"{sender}.{tag_of(kind)}.json").read_text(encoding="utf-8"))["vectors"]
    texts = [json.dumps(vector["value"]) for vector in vectors]
    return max(texts, key=len) if sender == "client" else texts[0]


def frame_parts() -> dict[str, Callable[[], str]]:
    senders: dict[str, Any] = {"client": frames.Request, "server": frames.ServerFrames}
    return {
        f"{sender}.{tag_of(kind)}": partial(frame_part, kind, sender)
        for sender, union in senders.items()
        for kind in union.__args__
    }


def entry() -> str:
    return said(frames.Entry)


def overview_chat() -> str:
    return said(frames.OverviewChat)


def presence_view() -> str:
    return said(frames.PresenceView)


# Codes and limits


def all_refusals() -> list[Refusal]:
    found = [value for value in vars(errors).values() if isinstance(value, Refusal)]
    return [*found, server.WRONG_METHOD]


def refusals() -> str:
    """One row per code; where several reasons share one, the first stands for all."""
    by_code: dict[str, Refusal] = {}
    for refusal in all_refusals():
        by_code.setdefault(refusal.code, refusal)
    rows = [
        (code(name), str(r.status), "yes" if r.temporary else "no", r.reason) for name, r in by_code.items()
    ]
    return table(("code", "HTTP status", "temporary", "reason"), rows)


def append_order() -> str:
    """The steps in which a send is answered, as the one function that decides it says them."""
    assert append.__doc__ is not None
    steps = append.__doc__.split("\n\n")[1]
    return f"```text\n{textwrap.dedent(steps)}\n```"


def closes() -> str:
    found = [value for value in vars(codes).values() if isinstance(value, codes.Close)]
    rows = [
        (str(close.code), close.reason, "yes" if codes.may_resume(close.code) else "no") for close in found
    ]
    return table(("code", "reason", "reconnect as you are"), sorted(rows))


def limit_table() -> str:
    named = {name: value for name, value in vars(limits).items() if name.isupper() and isinstance(value, int)}
    rows = [
        (code(name), f"{value:,}", "yes" if name in limits.WELCOME_LIMITS else "")
        for name, value in named.items()
        if name not in {"KIB", "MIB"}
    ]
    return table(("limit", "value", "in `welcome.limits`"), rows)


def rate_table() -> str:
    found = {name: value for name, value in vars(rates).items() if isinstance(value, rates.Rate)}
    assert set(found) == set(RATES), "every rate has its words in RATES, and no other"
    rows = [(RATES[name], _per(rate.per_second), f"{rate.burst:,.0f}") for name, rate in found.items()]
    return table(("what is counted", "in the long run", "at once"), rows)


def _per(per_second: float) -> str:
    for seconds, unit in ((1, "second"), (60, "minute"), (3600, "hour")):
        if (count := float(round(per_second * seconds, 6))) >= 1 and count.is_integer():
            return f"{count:g} per {unit}"
    raise ValueError(f"{per_second} per second has no round number per second, minute or hour")


# HTTP


def routes() -> str:
    return table(
        ("request", "what it does", "body", "answer", "scope", "cost"),
        [route_row(route) for route in ROUTES],
    )


def operations() -> str:
    """What is served beside the table of requests: bytes of files, the WebSocket, pages, health."""
    rows = [
        (code(f"{one.method} {one.path}"), one.summary, TOKENS[one.needs], str(one.cost))
        for one in OPERATIONS
    ]
    return table(("request", "what it does", "token", "cost"), rows)


def answer_names(answer: Any) -> str:
    return " or ".join(code(kind.__name__) for kind in alternatives(answer))


def route_row(route: Route) -> Sequence[str]:
    path = route.path + ("?" + "&".join(f"{one.name}=" for one in route.query) if route.query else "")
    status, answer = next(iter(route.answers.items()))
    return (
        code(f"{route.method} {path}"),
        route.summary,
        code(route.body.__name__) if route.body is not None else "",
        f"{status} {answer_names(answer)}" if answer is not None else str(status),
        code(route.scope.value) if route.scope is not None else "no token",
        str(route.cost),
    )


def scope_table() -> str:
    """Every frame in both directions, for each scope alone and for the two that are made to be combined."""
    columns = [[Scope.READ], [Scope.SEND], [Scope.READ, Scope.SEND], [Scope.ADMIN]]
    asked = [(f"{code(tag_of(kind))} is taken", needed) for kind, needed in scopes.REQUESTS.items()]
    pushed = [(f"{code(tag_of(kind))} is sent unasked", needed) for kind, needed in scopes.PUSHES.items()]
    others = [("`heads` in `heartbeat_ack`", scopes.HEADS), ("the person is online", scopes.ONLINE)]
    rows = [
        (says, *("yes" if scopes.allows(set(column), needed) else "no" for column in columns))
        for says, needed in [*asked, *pushed, *others]
    ]
    head = [" and ".join(code(scope.value) for scope in column) for column in columns]
    return table(("on a socket", *head), rows)


def bodies() -> str:
    """Every body with its fields; in what a client sends, those that may be left out say their default."""
    taken = {route.body for route in ROUTES if route.body is not None}
    answered = answers_of(ROUTES) | {Problem}
    asked_within = structs_within(*taken, *frames.Request.__args__)
    said_within = structs_within(*answered, *frames.ServerFrames.__args__)
    said_within -= answered | asked_within | TOLD_ELSEWHERE
    rows = [(code(kind.__name__), body_fields(kind, True)) for kind in by_name(taken | asked_within)]
    rows += [(code(kind.__name__), body_fields(kind, False)) for kind in by_name(answered | said_within)]
    return table(("body", "fields"), rows)


def body_fields(kind: type[Struct], is_asked: bool) -> str:
    return "<br>".join(
        f"{code(field.encode_name)} {type_name(field.type)}{_note(field, is_asked)}"
        for field in fields_of(kind)
        if field.name not in ENVELOPE
    )


def _note(field: inspect.Field, is_asked: bool) -> str:
    default, presence = default_of(field), presence_of(field)
    if is_asked:
        return "" if default == "required" else f", else {default}"
    return "" if presence == "always" else f", {presence}"


# Operating


def configuration() -> str:
    keys = {f"{section}.{key}" for section, names in config.sections().items() for key in names}
    assert keys == set(CONFIGURATION), "every key has its meaning in CONFIGURATION, and no other"
    rows = []
    for section in fields_of(config.Config):
        assert isinstance(section.type, inspect.StructType)
        for field in section.type.fields:
            key = f"{section.encode_name}.{field.name}"
            variable = config.variable_of(section.name, field.name)
            rows.append(
                (code(key), code(variable), type_name(field.type), default_of(field), CONFIGURATION[key])
            )
    return table(("key", "in the environment", "type", "default", "meaning"), rows)


def roles() -> str:
    assert set(config.ROLES) == set(ROLES), "every role has its words in ROLES, and no other"
    rows = [(code(role), ROLES[role], "yes" if role in config.ROLES_DEFAULT else "") for role in config.ROLES]
    return table(("role", "what the node does", "by default"), rows)


def extras() -> str:
    """What can be installed with pip, and the packages that each extra adds to the server."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {name: needs for name, needs in project["optional-dependencies"].items() if name != "dev"}
    assert set(found) == set(EXTRAS), "every extra has its words in EXTRAS, and no other"
    rows = [
        (code("parley-chat"), "the [SDK](sdk-python.md), and the commands that talk to a server elsewhere")
    ]
    rows += [(code(f"parley-chat[{name}]"), EXTRAS[name]) for name in found]
    return table(("install", "for"), rows)


def topics() -> str:
    """The topics that `parley store init` creates."""
    rows = []
    for topic in (*TOPICS, STORE):
        size = "`kafka.partitions`" + (f", at most {topic.partitions_max}" if topic.partitions_max else "")
        needs = "" if topic in TOPICS else '`bus.ingest = "bus"`'
        days = f"{topic.retention_days} d"
        rows.append(
            (code(topic.name), topic.holds, code(topic.key), size or "`kafka.partitions`", days, needs)
        )
    return table(("topic", "a record is", "key", "partitions", "kept", "needs"), rows)


def metric_table() -> str:
    """Every metric of the server's own, as `/metrics` names it; those of the process depend on the system."""
    rows = []
    for metric in Metrics(lambda: 0).registry.collect():
        if metric.name.startswith("process_"):
            continue
        name = metric.name + ("_total" if metric.type == "counter" else "")
        kind = "count" if metric.type == "unknown" else metric.type
        rows.append((code(name), kind, metric.documentation))
    return table(("metric", "type", "what it says"), rows)


def alerts() -> str:
    groups = yaml.safe_load((ROOT / "ops/alerts.yml").read_text(encoding="utf-8"))["groups"]
    rows = [
        (
            f"[{rule['alert']}](#{rule['alert'].lower()})",
            code(rule["expr"]),
            rule.get("for", "at once"),
            rule["labels"]["severity"],
        )
        for group in groups
        for rule in group["rules"]
    ]
    return table(("alert", "fires when", "for", "severity"), rows)


PARTS: dict[str, Callable[[], str]] = {
    **frame_parts(),
    "entry": entry,
    "overview_chat": overview_chat,
    "presence_view": presence_view,
    "refusals": refusals,
    "closes": closes,
    "append_order": append_order,
    "limits": limit_table,
    "routes": routes,
    "scopes": scope_table,
    "bodies": bodies,
    "operations": operations,
    "roles": roles,
    "extras": extras,
    "configuration": configuration,
    "rates": rate_table,
    "topics": topics,
    "metrics": metric_table,
    "alerts": alerts,
    "jobs": jobs,
    "engine_ports": engine_ports,
    "contract_suites": contract_suites,
    "engine_importers": engine_importers,
    "dynamodb_tables": dynamodb_tables,
}


def render(page: str) -> str:
    """The page with every generated part made anew."""

    def made(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- generated: {name} (make docs) -->\n{PARTS[name]()}\n<!-- end of {name} -->"

    return PART.sub(made, page)


def parts_in(page: str) -> list[str]:
    return [found["name"] for found in PART.finditer(page)]


def files() -> dict[Path, str]:
    """Everything that is generated, as it has to be."""
    pages = {ROOT / path: render((ROOT / path).read_text(encoding="utf-8")) for path in PAGES}
    faults = {mutants_page.PAGE: mutants_page.render(all_faults())}
    return pages | faults | typescript.files(all_refusals()) | materials.files()


def main() -> None:
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} is new")


if __name__ == "__main__":
    main()
