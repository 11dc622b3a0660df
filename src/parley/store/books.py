"""The port `Book`: few records of one kind, each under an id. Links, reports and the like are kept in books.

One port for all of them, because an engine does the same for each: it adds a record once, and replaces it
only if it is still what was read. What a record means is decided elsewhere.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from msgspec import Struct

from parley.core.recipient_health import RecipientHealth
from parley.model import AnsweredRequest, ErasureReport, Link, MessageReport, PersonDevices


class BookRecord(Protocol):
    """What a book keeps. A field that is added later has a default, which is not stored."""

    @property
    def record_id(self) -> str:
        """Its id: printable, and in the order in which the book is read."""
        ...


R = TypeVar("R", bound=BookRecord)


class Book(Protocol[R]):
    """Records of one kind. Read strongly."""

    async def add(self, record: R) -> R:
        """Durable before it returns. What is kept under its id: another record, if one was there before."""
        ...

    async def get(self, record_id: str) -> R | None:
        """The record with this id. Whatever a person types may be asked for."""
        ...

    async def page(self, before: str, limit: int) -> list[R]:
        """The records with the highest ids, descending: below `before`, if that is not empty."""
        ...

    async def swap(self, before: R, after: R) -> bool:
        """Replace a record, durably; False, and nothing changes, if it is not `before` any more.

        Of many who replace the same one at once, one does.
        """
        ...

    async def remove(self, record_id: str) -> bool:
        """Durable before it returns: nobody reads it again. False if there is none."""
        ...


class BookStore(Protocol):
    """The books of an engine."""

    @property
    def links(self) -> Book[Link]:
        """Invitations to register, and resets of passwords."""
        ...

    @property
    def reports(self) -> Book[MessageReport]:
        """Messages that members have reported."""
        ...

    @property
    def erasure_reports(self) -> Book[ErasureReport]:
        """What erasures have removed."""
        ...

    @property
    def failing_recipients(self) -> Book[RecipientHealth]:
        """Recipients of deliveries that do not answer."""
        ...

    @property
    def device_lists(self) -> Book[PersonDevices]:
        """Which devices each person has."""
        ...

    @property
    def answers(self) -> Book[AnsweredRequest]:
        """What requests with an `Idempotency-Key` were answered."""
        ...


LINKS, REPORTS, ERASURE_REPORTS = "links", "reports", "erasure_reports"
FAILING_RECIPIENTS = "failing_recipients"
DEVICES, ANSWERS = "devices", "answers"
"""The names of the books in a store."""


class KeptRecord(Struct, frozen=True, kw_only=True):
    """A record of any book as it is stored: what `parley copy` carries over. `record` is its JSON."""

    book: str
    record_id: str
    record: str
