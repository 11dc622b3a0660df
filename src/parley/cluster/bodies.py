"""What nodes say to each other, as bytes: MessagePack, bounded, and checked on its way in.

Fields have names, so that nodes of two versions understand each other during an upgrade.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from parley.errors import Refusal
from parley.model import Appended, Draft, Head, Outcome, Persisted
from parley.sending.forwarder import CALL_CHARS_MAX
from parley.store.ports import DRAFTS_PER_APPEND_MAX
from parley.wire.limits import CHAT_MEMBERS_MAX, KIB, MESSAGE_BYTES_MAX, MIB

BODY_BYTES_MAX = 2 * MIB
NOTICES_PER_CALL_MAX = 100
MEMBERS_PER_CALL_MAX = 2 * CHAT_MEMBERS_MAX
UTF8_BYTES_PER_CHAR_MAX = 4
DRAFT_BYTES_BESIDE_CONTENT_MAX = 2 * KIB
NOTICE_BYTES_BESIDE_MEMBERS_MAX = 4 * KIB
USER_ID_BYTES_MAX = 40
assert (
    CALL_CHARS_MAX * UTF8_BYTES_PER_CHAR_MAX
    + MESSAGE_BYTES_MAX
    + DRAFTS_PER_APPEND_MAX * DRAFT_BYTES_BESIDE_CONTENT_MAX
    < BODY_BYTES_MAX
), "a full batch fits into a body"
assert (
    NOTICES_PER_CALL_MAX * NOTICE_BYTES_BESIDE_MEMBERS_MAX + MEMBERS_PER_CALL_MAX * USER_ID_BYTES_MAX
    < BODY_BYTES_MAX
), "and so do notices"

APPEND = "/node/append"
NOTICES = "/node/notices"
NEWS = "/node/news"
PING = "/node/ping"
LISTED = b"listed"
"""What a node answers to a ping while its own lease holds; one of an older version says nothing."""

T = TypeVar("T")


class Joined(Struct, frozen=True, tag="joined"):
    """A chat was created with these members."""

    notice_id: str
    chat_id: str
    head: Head
    user_ids: list[str]


class SessionsEnded(Struct, frozen=True, tag="sessions_ended"):
    """These sessions may no longer be used."""

    notice_id: str
    session_ids: list[str]


Notice = Joined | SessionsEnded


class _OutcomeBody(Struct, omit_defaults=True):
    """One outcome: exactly one of the two is there."""

    appended: Appended | None = None
    refusal: Refusal | None = None

    def outcome(self) -> Outcome:
        if self.appended is not None and self.refusal is None:
            return self.appended
        if self.refusal is not None and self.appended is None:
            return self.refusal
        raise BadBody("an outcome is a position or a refusal")


class BadBody(ValueError):
    """Bytes that no node of this cluster would say."""


pack = msgspec.msgpack.Encoder().encode
_drafts = msgspec.msgpack.Decoder(list[Draft])
_outcomes = msgspec.msgpack.Decoder(list[_OutcomeBody])
_notices = msgspec.msgpack.Decoder(list[Notice])
_news = msgspec.msgpack.Decoder(list[Persisted])


def read_drafts(body: bytes) -> list[Draft]:
    drafts = _read(_drafts, body)
    if not 1 <= len(drafts) <= DRAFTS_PER_APPEND_MAX:
        raise BadBody(f"a batch has 1 to {DRAFTS_PER_APPEND_MAX} drafts")
    return drafts


def pack_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    return pack(
        [
            _OutcomeBody(refusal=one) if isinstance(one, Refusal) else _OutcomeBody(appended=one)
            for one in outcomes
        ]
    )


def read_outcomes(body: bytes, count: int) -> list[Outcome]:
    """The outcomes of so many drafts, in their order."""
    told = _read(_outcomes, body)
    if len(told) != count:
        raise BadBody(f"{count} drafts were answered by {len(told)} outcomes")
    return [one.outcome() for one in told]


def read_notices(body: bytes) -> list[Notice]:
    return _read(_notices, body)


def read_news(body: bytes) -> list[Persisted]:
    """Entries that another node has stored: none is empty, and each ascends."""
    news = _read(_news, body)
    for one in news:
        sequences = [stored.sequence for stored in one.positions]
        if not sequences or sequences != sorted(set(sequences)):
            raise BadBody("news has positions, in ascending order")
    return news


def _read(decoder: msgspec.msgpack.Decoder[list[T]], body: bytes) -> list[T]:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadBody(str(error)) from error
