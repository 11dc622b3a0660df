"""Actions that are recorded before they begin, and again when they have ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog
from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.clock import Clock, iso
from parley.errors import Refused, StoreError, refusal_of
from parley.model import AuditRecord
from parley.records.audit import AuditLog

DONE, FAILED = "done", "failed"
RECORDS_LOOKED_AT_MAX = 5_000
"""Records that a page with conditions reads."""
COMMAND_LINE = "cli:"
SERVER = "server"
"""Who acts when a job does what the configuration says."""

log = structlog.get_logger("parley.accounts")


class OperatorCall(Struct, frozen=True):
    """Who acts, by which request, and with which token: of a program or a session."""

    actor: str
    request_id: str = ""
    token_id: str = ""
    token_name: str = ""

    @property
    def is_person(self) -> bool:
        return not self.actor.startswith(COMMAND_LINE) and self.actor != SERVER


class WantedRecords(Struct, frozen=True, kw_only=True):
    """Which records are meant: all that are given must hold. Times as records have them."""

    actor: str = ""
    action: str = ""
    target: str = ""
    since: str = ""
    until: str = ""

    def takes(self, record: AuditRecord) -> bool:
        pairs = (
            (self.actor, record.actor),
            (self.action, record.action),
            (self.target, record.target_id),
        )
        is_in_time = record.at >= self.since and (not self.until or record.at < self.until)
        return is_in_time and all(wanted in ("", found) for wanted, found in pairs)


ANY_RECORD = WantedRecords()


class FoundRecords(NamedTuple):
    """`next_before`: where the next page begins; None on the last one."""

    records: list[AuditRecord]
    next_before: str | None


class AuditTrail:
    def __init__(self, audit: AuditLog, clock: Clock, make_ids: ids.Ids) -> None:
        self._audit = audit
        self._clock = clock
        self._ids = make_ids

    async def records(self, before: str, limit: int, wanted: WantedRecords = ANY_RECORD) -> FoundRecords:
        """The newest first. A page reads a bounded number, so it may be short although others follow."""
        found, looked_at = list[AuditRecord](), 0
        while looked_at < RECORDS_LOOKED_AT_MAX:
            some = await self._audit.records(before, limit)
            for record in some:
                looked_at, before = looked_at + 1, record.audit_id
                if record.at < wanted.since:
                    return FoundRecords(found, None)
                if wanted.takes(record):
                    found.append(record)
                if len(found) == limit:
                    return FoundRecords(found, before)
            if len(some) < limit:
                return FoundRecords(found, None)
        return FoundRecords(found, before)

    @asynccontextmanager
    async def audited(
        self, call: OperatorCall, action: str, target_id: str, detail: str = ""
    ) -> AsyncIterator[None]:
        """What happens inside is recorded before it begins; without a record it does not happen."""
        now_ms = self._clock()
        record = AuditRecord(
            audit_id=self._ids.next(ids.AUDIT, now_ms),
            at=iso(now_ms),
            actor=call.actor,
            action=action,
            target_id=target_id,
            request_id=call.request_id,
            detail=detail,
            token_id=call.token_id,
            token_name=call.token_name,
        )
        await self._audit.record(record)
        outcome = FAILED
        try:
            yield
            outcome = DONE
        except Refused as error:
            outcome = error.refusal.code
            raise
        except StoreError as error:
            outcome = refusal_of(error).code
            raise
        finally:
            try:
                await self._audit.record(replace(record, outcome=outcome))
            except StoreError as error:  # the record says `begun`
                log.error("outcome not recorded", audit_id=record.audit_id, outcome=outcome, error=str(error))
