"""A DynamoDB that hangs: senders are answered in time, and what it does later is found by a retry."""

import pytest

from parley.bus.embedded import EmbeddedBus
from parley.errors import Refused
from parley.model import Draft
from parley.sending import answers
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from tests.contracts.acting import contents, message, read_all, said
from tests.contracts.dynamodb_nodes import Held
from tests.contracts.dynamodb_world import MODES, world

SOON_SECONDS = 0.2
LATE_SECONDS = 60.0


async def code_of(sends: LocalSender, draft: Draft) -> str:
    try:
        sent = await sends.send(draft)
    except Refused as refused:
        return refused.refusal.code
    return "deduplicated" if sent.deduplicated else "stored"


@pytest.mark.parametrize("mode", MODES)
async def test_a_transaction_that_hangs_leaves_nobody_waiting(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender hears that nobody knows, whoever is behind it that nothing is stored, a retry the truth."""
    async with world(mode, 1) as (node,):
        await said(node, node.chat, node.ann, "warm")
        sends = LocalSender(node.log, EmbeddedBus(), PendingSends(), node.metrics, node.store.batching)
        under_way, behind = (message(node.chat, node.ann, content) for content in ("under way", "behind"))
        held = Held("TransactWriteItems")
        node.faults.now = held
        monkeypatch.setattr(answers, "SEND_SECONDS_MAX", SOON_SECONDS)
        assert await code_of(sends, under_way) == "outcome_unknown"
        assert await code_of(sends, behind) == "store_unavailable"
        monkeypatch.setattr(answers, "SEND_SECONDS_MAX", LATE_SECONDS)
        held.release()
        assert [await code_of(sends, draft) for draft in (under_way, behind)] == ["deduplicated", "stored"]
        assert contents(await read_all(node, node.chat)) == ["warm", "under way", "behind"]
        await sends.stop()
