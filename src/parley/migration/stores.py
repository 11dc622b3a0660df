"""Copies of a store to another engine, and imports into one: checked before and after."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from parley.archive.tiers import TieredEngine, archived_rows
from parley.checks.check import check
from parley.clock import Clock, iso
from parley.config import Config
from parley.delivery.ports import KINDS
from parley.errors import ConfigError
from parley.ids import AUDIT, Ids
from parley.migration.copies import CopyRefused, CopyReport, OnProgress, StoreCopy
from parley.migration.imports import ImportReport, WorkspaceImport
from parley.migration.rows import StoreRows
from parley.migration.workspaces import Workspace
from parley.model import AuditRecord
from parley.records.audit import AuditLog
from parley.store.folder import lock_folder
from parley.store.ports import Engine

GROUPS = [kind.group for kind in KINDS]
"""The workers of a server. What was copied is nothing new to them."""


class CopySide(Struct):
    """A store that is copied, or copied to: its engine, and how to name it."""

    config: Config
    engine: Engine
    name: str


async def copy_store(
    source: CopySide, target: CopySide, clock: Clock, on_progress: OnProgress, *, checks: bool
) -> CopyReport:
    """Check the source, copy it, compare, and check the target.

    StoreBusy if a server runs on a folder of either. CopyRefused if the source is not sound: a copy would
    make its holes look like voids.
    """
    if source.name == target.name:
        raise CopyRefused("source and target are the same store")
    with ExitStack() as locks:
        for side in (source, target):
            if not side.config.store.is_shared:
                locks.enter_context(lock_folder(Path(side.config.server.data)))
        try:
            theirs, ours = StoreRows(source.engine), StoreRows(_hot(target.engine))
            await target.engine.create(lambda _: None)
            await _refuse_trimmed(source)
            if checks:
                await _check_side(source)
            copy = StoreCopy(theirs, ours, source.name, GROUPS, clock, on_progress)
            report = await copy.run()
            if checks:
                await _check_side(target)
            return report
        finally:
            await source.engine.close()
            await target.engine.close()


def _hot(engine: Engine) -> Engine:
    """A copy is written to the engine: its own archiver moves what is old."""
    return engine.hot if isinstance(engine, TieredEngine) else engine


async def _refuse_trimmed(side: CopySide) -> None:
    """Entries that were moved elsewhere are not in the engine: as holes they would become voids."""
    if isinstance(side.engine, TieredEngine):
        return
    async for chats in side.engine.inspection.chats(None):
        for chat in chats:
            if chat.trimmed_through:
                raise CopyRefused(
                    f"{chat.chat_id} has archived entries: set archive.target in the configuration of the"
                    " source, and they are copied, too"
                )


async def _check_side(side: CopySide) -> None:
    findings = await check(side.engine, archived=archived_rows(side.engine))
    if not findings.is_clean:
        first = findings.breaches[0]
        raise CopyRefused(f"{side.name} is not sound ({first.invariant}: {first.says}): run parley check")


async def import_workspace(
    workspace: Workspace,
    engine: Engine,
    clock: Clock,
    actor: str,
    *,
    matches_names: bool,
    on_progress: Callable[[ImportReport], None],
    random_bits: Callable[[int], int] = secrets.randbits,
) -> ImportReport:
    """Bring in an export, and see to it that nobody is told of it as of something new.

    ConfigError if workers still have something to do: what is marked as done would include that.
    """
    transfer = engine.transfer
    lags = await engine.feed.lags() if engine.feed is not None else {}
    if any(lags.get(group) for group in GROUPS):
        raise ConfigError("deliveries are under way: let the server run until they are done, then stop it")
    now_ms = clock()
    record = AuditRecord(
        audit_id=Ids(random_bits).next(AUDIT, now_ms),
        at=iso(now_ms),
        actor=actor,
        action="store.import",
        target_id=workspace.source,
    )
    audit = AuditLog(engine.records)
    await audit.record(record)
    job = WorkspaceImport(workspace, engine, clock, matches_names=matches_names, on_progress=on_progress)
    report = await job.run()
    if engine.outbox is not None:
        await engine.outbox.flush()
    await transfer.settle(GROUPS, clock())
    await audit.record(replace(record, outcome="done"))
    return report
