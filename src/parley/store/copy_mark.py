"""The mark of a copy into a store: no server opens one that is not finished."""

from __future__ import annotations

from parley.errors import ConfigError
from parley.store.ports import Records
from parley.store.records import COPY_MARK, NOT_FINISHED, is_unfinished
from parley.store.tables import SERVER_KEYS, listed


async def check_copied(records: Records) -> None:
    """ConfigError if a copy into this store is not finished."""
    (mark,) = await records.get(SERVER_KEYS, [listed(COPY_MARK)])
    if mark is not None and is_unfinished(mark.value):
        raise ConfigError(NOT_FINISHED)
