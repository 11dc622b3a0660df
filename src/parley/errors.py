"""Every refusal and error, as one tree.

    ParleyError
    ├── Refused                     a refused request; says whether a retry helps
    └── StoreError
        ├── StoreBusy               the write lock was not free in time
        ├── StoreUnavailable        nothing was written; it may work later
        │   └── EntriesTrimmed      it is in the cold tier, not in this engine
        ├── StoreDamaged            what is stored is not what was written; nothing was written now
        ├── OutcomeUnknown          a commit failed: perhaps written, perhaps not
        ├── CounterMissingError     a chat without its counter: an operator must act
        └── InconsistentCounterError  a counter behind its own log

A refusal is a value (`Refusal`) wherever it is an ordinary result, and is raised as `Refused` only
where a use case ends early. Drivers' own errors never leave the store.
"""

from __future__ import annotations

from typing import final

from msgspec import Struct


@final
class Refusal(Struct, frozen=True):
    """Why a request was not done. `code` is stable; `reason` is for people."""

    code: str
    reason: str
    temporary: bool = False
    retry_after_ms: int | None = None
    status: int = 400

    def because(self, reason: str) -> Refusal:
        return Refusal(self.code, reason, self.temporary, self.retry_after_ms, self.status)

    def after(self, retry_after_ms: int) -> Refusal:
        return Refusal(self.code, self.reason, self.temporary, retry_after_ms, self.status)


BAD_REQUEST = Refusal("bad_request", "the request is not well formed")
UNKNOWN_TYPE = Refusal("unknown_type", "there is no frame of this type")
UNAUTHENTICATED = Refusal("unauthenticated", "a valid token is needed; log in again", status=401)
WRONG_PASSWORD = Refusal("unauthenticated", "no account has this username and password", status=401)
FORBIDDEN = Refusal("forbidden", "your role does not allow this", status=403)
PASSWORD_NEEDED = Refusal(
    "password_needed", "this needs your password again: it was too long ago that you gave it", status=403
)
NOT_A_MEMBER = Refusal("not_a_member", "you are not a member of this chat", status=403)
BLOCKED = Refusal("blocked", "this person does not accept messages from you", status=403)
ACCOUNT_DISABLED = Refusal(
    "account_disabled", "this account is disabled; ask the operator of this server", status=403
)
USER_DELETED = Refusal("user_deleted", "this person has deleted their account", status=403)
LAST_OPERATOR = Refusal(
    "last_operator",
    "this is the last operator; make another one first: parley user add --operator",
    status=409,
)
MESSAGE_DELETED = Refusal("message_deleted", "this message was deleted", status=409)
EDIT_WINDOW_OVER = Refusal("edit_window_over", "this message is too old to be edited", status=403)
TOO_MANY_REACTIONS = Refusal(
    "too_many_reactions", "this message has as many different reactions as it may", status=409
)
ANNOUNCEMENT_ONLY = Refusal("announcement_only", "only owners and admins post in this group", status=403)
SLOW_MODE = Refusal("slow_mode", "this group is in slow mode; wait and try again", True, 1000, status=429)
UNDER_HOLD = Refusal(
    "under_hold", "nothing of this chat may be changed: it is under a legal hold", status=403
)
ATTACHMENT_USED = Refusal(
    "attachment_used", "this file belongs to another message; upload it again", status=409
)
NOT_UPLOADED = Refusal("not_uploaded", "this file is not uploaded completely", status=409)
CHECKSUM_MISMATCH = Refusal(
    "checksum_mismatch", "the bytes are not those that the upload was announced with", status=422
)
QUOTA_EXCEEDED = Refusal("quota_exceeded", "your files take as much room as they may", status=413)
WRONG_RANGE = Refusal("wrong_range", "this is not the next range of the upload", status=409)
NOT_FOUND = Refusal("not_found", "there is nothing here, or it is not yours to see", status=404)
NO_SUCH_MESSAGE = NOT_FOUND.because("there is no such message in this chat")
NO_SUCH_ATTACHMENT = NOT_FOUND.because("there is no such file in this chat that you may use")
NO_SUCH_USER = NOT_FOUND.because("there is no such user")
NO_SUCH_ERASURE = NOT_FOUND.because("nothing was erased of this person")
NO_SUCH_LINK = NOT_FOUND.because("there is no such link")
NO_SUCH_REPORT = NOT_FOUND.because("there is no such report")
LINK_USED = Refusal("link_used", "this link was used; ask the operator for another", status=410)
LINK_EXPIRED = Refusal("link_expired", "this link has run out; ask the operator for another", status=410)
LINK_REVOKED = Refusal("link_revoked", "this link was revoked by an operator", status=410)
ALREADY_RESOLVED = Refusal("already_resolved", "this report was resolved in another way", status=409)
DUPLICATE_ID = Refusal("duplicate_id", "this client_message_id is taken; create a new one", status=409)
USERNAME_TAKEN = Refusal("username_taken", "this username is taken; choose another", status=409)
IDEMPOTENCY_CONFLICT = Refusal(
    "idempotency_conflict",
    "this Idempotency-Key was used for another request; make a new key for each",
    status=409,
)
PREVIEW_OUTDATED = Refusal(
    "preview_outdated",
    "other dead letters match now than in the preview; nothing was changed, look again",
    status=409,
)
OUT_OF_TURN = Refusal(
    "out_of_turn",
    "the message named in after_client_message_id is not stored; resend in order",
    True,
    status=409,
)
AHEAD_OF_LOG = Refusal("ahead_of_log", "this position is beyond the end of the log", status=409)
TOO_LARGE = Refusal("too_large", "this is larger than the limit", status=413)
REQUEST_TIMEOUT = Refusal(
    "request_timeout", "the body did not arrive in time; send it again", True, status=408
)
UNSUPPORTED_MEDIA = Refusal("unsupported_media_type", "send JSON as application/json", status=415)
RATE_LIMITED = Refusal("rate_limited", "too fast; wait and try again", True, 1000, status=429)
COUNTER_MISSING = Refusal(
    "counter_missing",
    "this chat cannot take messages until its operator repairs it",
    True,
    30_000,
    status=503,
)
COUNTER_INCONSISTENT = Refusal(
    "counter_inconsistent",
    "this chat cannot take messages until its operator repairs it",
    True,
    30_000,
    status=503,
)
STORE_UNAVAILABLE = Refusal("store_unavailable", "nothing was stored; try again", True, 1000, status=503)
STORE_DAMAGED = Refusal(
    "store_damaged",
    "what is stored here is damaged, and a retry does not help; nothing was stored; tell the operator",
    status=500,
)
OUTCOME_UNKNOWN = Refusal(
    "outcome_unknown",
    "it may or may not be stored; retry with the same client_message_id",
    True,
    1000,
    status=503,
)
SERVICE_UNAVAILABLE = Refusal(
    "service_unavailable", "Message stored but fanout failed. Please retry.", True, 1000, status=503
)
SHUTTING_DOWN = Refusal(
    "shutting_down", "this server is shutting down; reconnect and resume", True, 1000, status=503
)
KEYS_UNAVAILABLE = Refusal(
    "keys_unavailable", "the keys that tokens are checked with cannot be fetched", True, 5000, status=503
)
SEARCH_OFF = Refusal("search_off", "this server does not search; its operator turned it off", status=403)
SEARCH_BEHIND = Refusal(
    "search_behind", "the search index is not up to date yet; try again", True, 1000, status=503
)
NODE_SILENT = Refusal("node_silent", "this node does not answer; try again", True, 1000, status=503)
BUSY = Refusal("busy", "too many requests of this kind are waiting", True, 1000, status=503)
TOO_MANY_CONNECTIONS = Refusal(
    "too_many_connections", "this user has too many connections; close another one first", status=429
)
INTERNAL = Refusal("internal", "the server failed; try again", True, 1000, status=500)


class ParleyError(Exception):
    """The root of everything this package raises on purpose."""


class Refused(ParleyError):
    """A use case ended early. The caller answers with the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.code}: {refusal.reason}")
        self.refusal = refusal


class ConfigError(ParleyError):
    """The configuration cannot be used; the message is one sentence for the operator."""


class StoreError(ParleyError):
    """Something below the store's port failed."""


class StoreBusy(StoreError):
    """The write lock was not free in time; nothing was written."""


class StoreUnavailable(StoreError):
    """Nothing was written; it may work later."""


class EntriesTrimmed(StoreUnavailable):
    """What was asked for was moved to the cold tier. Without one, it cannot be read.

    `places`: the chat and the sequence of each position that it may be at; a read starts at the first.
    """

    def __init__(self, *places: tuple[str, int]) -> None:
        super().__init__("these entries are archived; set archive.target to where they are")
        self.places = places


class StoreDamaged(StoreError):
    """What is stored cannot be read as it was written. Nothing was written, and a retry meets it again.

    `place`: the table, chat or range, as far as it is known; never what stands there.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"the store is damaged: {place}: {problem}")
        self.place = place
        self.problem = problem


class OutcomeUnknown(StoreError):
    """A commit failed. Its content may be stored: neither acknowledge nor refuse it."""


class CounterMissingError(StoreError):
    """A chat has lost its counter. Nothing was allocated; `parley recover` repairs it."""


class InconsistentCounterError(StoreError):
    """A counter is behind its own log."""

    def __init__(self, counter: int, max_sequence: int) -> None:
        super().__init__(f"Counter exists with value {counter} but max message sequence is {max_sequence}")
        self.counter = counter
        self.max_sequence = max_sequence


def refusal_of(error: StoreError) -> Refusal:
    """What a caller is told when the store failed. Only what was certainly not stored is refused as such."""
    match error:
        case OutcomeUnknown():
            return OUTCOME_UNKNOWN
        case StoreDamaged():
            return STORE_DAMAGED
        case _:
            return STORE_UNAVAILABLE
