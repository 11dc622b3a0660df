"""What people and their devices did, as far as it was taken."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Acked:
    """A device said how far it is."""

    user: str
    device: str
    chat: str
    sequence: int
    at: str


@dataclass(frozen=True)
class Read:
    """A person said how far they have read."""

    user: str
    chat: str
    sequence: int
    at: str


@dataclass(frozen=True)
class LoggedIn:
    user: str
    device: str
    session: str


@dataclass(frozen=True)
class Revoked:
    """A session ended; with its last one its device is forgotten."""

    user: str
    session: str


@dataclass(frozen=True)
class Came:
    """A socket of a device opened."""

    user: str
    device: str
    at: str


@dataclass(frozen=True)
class Went:
    """The last socket of a device was closed properly."""

    user: str
    device: str
    at: str


@dataclass(frozen=True)
class Muted:
    user: str
    chat: str
    until: str | None


@dataclass(frozen=True)
class SendsReads:
    """A person chose whether others learn what they read."""

    user: str
    sends: bool


@dataclass(frozen=True)
class ShowsTo:
    """A person chose who may see when they are there."""

    user: str
    privacy: str


@dataclass(frozen=True)
class Holds:
    """A person has another one as a contact, or blocked, or no longer: `relation` names the list."""

    user: str
    other: str
    relation: str
    holds: bool


Event = Acked | Read | LoggedIn | Revoked | Came | Went | Muted | SendsReads | ShowsTo | Holds
