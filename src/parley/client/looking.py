"""Before a message older than the server's memory of ids goes out again: is it in the log already?"""

from __future__ import annotations

from parley.client.api import Api
from parley.client.keeping import Outgoing
from parley.clock import MS_PER_DAY, from_iso
from parley.wire.frames import Ack

PAGE_ENTRIES = 1_000
CLOCK_SKEW_MS_MAX = MS_PER_DAY


async def find_stored(api: Api, message: Outgoing) -> Ack | None:
    """The ack of a message that is in its chat's log.

    The server's word on the id decides as long as it says yes. A key may have expired while the entry stays,
    so a no is checked against the log itself, back to when the message was written.
    """
    found = await api.find_send(message.chat_id, message.client_message_id)
    if found is not None:
        return _ack(message, found.message_id, found.sequence, found.epoch, found.created_at)
    return await _search_log(api, message)


async def _search_log(api: Api, message: Outgoing) -> Ack | None:
    oldest_ms = message.created_at_ms - CLOCK_SKEW_MS_MAX
    params = {"limit": str(PAGE_ENTRIES), "before": str(2**53 - 1)}
    while True:
        page = await api.history(message.chat_id, params)
        for entry in page.entries:
            if entry.client_message_id == message.client_message_id:
                return _ack(message, entry.message_id, entry.sequence, entry.epoch, entry.created_at)
        first = page.from_sequence
        if first <= 1 or not page.entries or from_iso(page.entries[0].created_at) < oldest_ms:
            return None
        params["before"] = str(first)


def _ack(message: Outgoing, message_id: str, sequence: int, epoch: int, created_at: str) -> Ack:
    return Ack(
        chat_id=message.chat_id,
        client_message_id=message.client_message_id,
        message_id=message_id,
        sequence=sequence,
        epoch=epoch,
        created_at=created_at,
        deduplicated=True,
        conflict=False,
    )
