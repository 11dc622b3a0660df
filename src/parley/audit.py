"""Actions that are recorded before they begin, and again when they have ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.clock import Clock, iso
from parley.errors import Refused, StoreError, refusal_of
from parley.model import AuditRecord
from parley.records.audit import AuditLog

DONE, FAILED = "done", "failed"
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


class AuditTrail:
    def __init__(self, audit: AuditLog, clock: Clock, make_ids: ids.Ids) -> None:
        self._audit = audit
        self._clock = clock
        self._ids = make_ids

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
