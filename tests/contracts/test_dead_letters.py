"""Dead letters: found, counted, replayed once, and gone in the end."""

from typing import Any

import pytest
from msgspec.structs import replace

from parley.core.deliveries import (
    HISTORY_EVENTS_MAX,
    DeadLetter,
    DeadLetterStatus,
    DeliveryEvent,
    Selection,
    pending_line,
    queue_line,
)
from parley.records.dead_letters import NOTE_MS, DeadLetters
from parley.store.tables import DEAD_LETTERS, PENDING_DEAD_LETTERS, QUEUED_DEAD_LETTERS, PutRecord
from tests.contracts.engines import Engine

ALL = Selection()
ASKED = DeliveryEvent(50, "replay", actor="user_1")
THROWN_AWAY = DeliveryEvent(60, "discard", detail="no use", actor="user_1")


def dead_letter(number: int, **values: Any) -> DeadLetter:
    usual: dict[str, Any] = {
        "dlq_id": f"dlq_{number:02}",
        "chat_id": "chat_1",
        "sequence": number,
        "recipient": "wh_1",
        "message_id": f"msg_{number}",
        "sender_id": "user_2",
        "created_ms": number,
        "error": "timeout",
        "detail": "no answer",
        "retry_count": 3,
        "first_attempt_ms": number + 1,
        "last_attempt_ms": number + 7,
        "dlq_ms": number * 10,
        "changed_ms": number * 10,
        "source_topic": "messages.outbound",
        "source_offset": number,
        "history": (DeliveryEvent(1, "failed", "timeout"),),
    }
    return DeadLetter(**usual | values)


async def found(dead_letters: DeadLetters, selection: Selection = ALL) -> list[int]:
    return sorted(one.sequence for one in await dead_letters.find(selection, "", 100))


async def test_a_dead_letter_is_added_once(engine: Engine) -> None:
    """A worker that was killed after it had written one writes it again: the first one stays."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        assert await dead_letters.add(dead_letter(1))
        assert await dead_letters.discard(ALL, "job_1", THROWN_AWAY) == 1
        assert not await dead_letters.add(dead_letter(1, error="refused"))
        await store.reopen()
        (kept,) = await store.deliveries.dead_letters.find(ALL, "", 10)
        assert kept == replace(
            dead_letter(1),
            status=DeadLetterStatus.FAILED,
            changed_ms=60,
            job_id="job_1",
            version=2,
            history=(*dead_letter(1).history, THROWN_AWAY),
        )


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (ALL, [1, 2, 3, 4]),
        (Selection(error="refused"), [2]),
        (Selection(topic="push"), [3]),
        (Selection(chat_id="chat_2"), [4]),
        (Selection(recipient="wh_2"), [4]),
        (Selection(after_ms=20), [2, 3, 4]),
        (Selection(before_ms=20), [1]),
        (Selection(after_ms=20, before_ms=40, error="timeout"), [3]),
        (Selection(ids=("dlq_01", "dlq_03", "dlq_99", "a\0b")), [1, 3]),
        (Selection(ids=()), []),
        (Selection(status=DeadLetterStatus.PENDING), [1, 2, 3, 4]),
        (Selection(status=DeadLetterStatus.REPLAYED), []),
        (Selection(is_queued=True), []),
    ],
)
async def test_letters_are_found_and_counted_by_what_they_are(
    engine: Engine, selection: Selection, expected: list[int]
) -> None:
    """All conditions that are given must hold."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        for one in (
            dead_letter(1),
            dead_letter(2, error="refused"),
            dead_letter(3, source_topic="push"),
            dead_letter(4, chat_id="chat_2", recipient="wh_2"),
        ):
            await dead_letters.add(one)
        assert await found(dead_letters, selection) == expected
        assert sum((await dead_letters.count(selection)).values()) == len(expected)


async def test_pages_go_on_where_the_last_one_ended(engine: Engine) -> None:
    """The highest id first; the counts are by error."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        for number in range(1, 6):
            await dead_letters.add(dead_letter(number, error="refused" if number > 3 else "timeout"))
        first = await dead_letters.find(ALL, "", 2)
        assert [one.sequence for one in first] == [5, 4]
        assert [one.sequence for one in await dead_letters.find(ALL, first[-1].dlq_id, 9)] == [3, 2, 1]
        assert await dead_letters.count(ALL) == {"refused": 2, "timeout": 3}


async def test_a_replay_is_queued_once(engine: Engine) -> None:
    """Asked for twice, a dead letter keeps its first job; its retries begin anew."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        await dead_letters.add(dead_letter(1))
        await dead_letters.add(dead_letter(2, error="refused"))
        assert await dead_letters.queue(Selection(error="timeout"), "job_1", ASKED) == 1
        assert await dead_letters.queue(ALL, "job_2", ASKED) == 1
        assert await found(dead_letters, Selection(job_id="job_1", is_queued=True)) == [1]
        queued = await dead_letters.queued("", 10)
        assert [(one.sequence, one.retry_count, one.history[-1]) for one in queued] == [
            (1, 0, ASKED),
            (2, 0, ASKED),
        ]


async def test_a_history_keeps_its_beginning_and_its_end(engine: Engine) -> None:
    """However often a dead letter is queued and fails again, and when it is thrown away at last."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        first = tuple(DeliveryEvent(at, "failed", "timeout") for at in range(HISTORY_EVENTS_MAX))
        await dead_letters.add(dead_letter(1, history=first))
        assert await dead_letters.queue(ALL, "job_1", ASKED) == 1
        (queued,) = await dead_letters.queued("", 1)
        assert queued.history == (first[0], *first[2:], ASKED)
        assert await dead_letters.discard(ALL, "job_2", THROWN_AWAY) == 1
        (kept,) = await dead_letters.find(ALL, "", 1)
        assert kept.history == (first[0], *first[3:], ASKED, THROWN_AWAY)


async def test_only_pending_letters_are_replayed_or_discarded(engine: Engine) -> None:
    """What was replayed or thrown away stays so; what is queued can still be thrown away."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        await dead_letters.add(dead_letter(1, status=DeadLetterStatus.REPLAYED))
        await dead_letters.add(dead_letter(2, status=DeadLetterStatus.FAILED))
        await dead_letters.add(dead_letter(3))
        assert await dead_letters.queue(ALL, "job_1", ASKED) == 1
        assert await dead_letters.discard(ALL, "job_2", THROWN_AWAY) == 1
        assert await dead_letters.queued("", 10) == []
        assert await found(dead_letters, Selection(status=DeadLetterStatus.FAILED)) == [2, 3]


async def test_the_queue_is_in_the_order_of_each_chat(engine: Engine) -> None:
    """However the dead letters were added: a few of each recipient and chat, lowest sequence first."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        for number, chat_id in [(10, "chat_2"), (4, "chat_1"), (2, "chat_1"), (3, "chat_1"), (5, "chat_2")]:
            await dead_letters.add(dead_letter(number, chat_id=chat_id))
        await dead_letters.queue(ALL, "job_1", ASKED)
        queued = [(one.chat_id, one.sequence) for one in await dead_letters.queued("", 2)]
        assert queued == [("chat_1", 2), ("chat_1", 3), ("chat_2", 5), ("chat_2", 10)]
        fronts = [(one.chat_id, one.sequence) for one in await dead_letters.queued("wh_", 1)]
        assert fronts == [("chat_1", 2), ("chat_2", 5)]
        assert await dead_letters.queued("push_", 2) == []


async def test_a_letter_that_changed_meanwhile_is_not_overwritten(engine: Engine) -> None:
    """Of a worker that settles it and an operator who discards it, one wins, and the other learns of it."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        await dead_letters.add(dead_letter(1))
        (read,) = await dead_letters.find(ALL, "", 1)
        await dead_letters.discard(ALL, "job_1", THROWN_AWAY)
        assert not await dead_letters.settle(replace(read, status=DeadLetterStatus.REPLAYED))
        (now,) = await dead_letters.find(ALL, "", 1)
        assert now.status is DeadLetterStatus.FAILED
        assert await dead_letters.settle(replace(now, detail="looked at"))
        assert not await dead_letters.settle(replace(now, detail="looked at twice"))


async def test_letters_expire_unless_they_are_queued(engine: Engine) -> None:
    """By the time of their last change, not of their message."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        for number in (1, 2, 3, 4):
            await dead_letters.add(dead_letter(number))
        await dead_letters.discard(Selection(ids=("dlq_01",)), "job_1", THROWN_AWAY)
        await dead_letters.queue(Selection(ids=("dlq_02",)), "job_2", ASKED)
        assert await dead_letters.expire(40) == 1
        assert await found(dead_letters) == [1, 2, 4]


async def test_what_a_crash_left_on_a_list_is_removed_later(engine: Engine) -> None:
    """A line that its dead letter contradicts counts for nothing once it is old; a new one stays a while."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        await dead_letters.add(dead_letter(1))
        await store.records.commit(
            PENDING_DEAD_LETTERS, [PutRecord(pending_line(dead_letter(2), store.clock()))]
        )
        await store.records.commit(
            QUEUED_DEAD_LETTERS, [PutRecord(queue_line(dead_letter(1), store.clock()))]
        )
        assert await found(dead_letters, Selection(status=DeadLetterStatus.PENDING)) == [1]
        assert await dead_letters.queued("", 10) == []
        assert len([one async for page in store.records.scan(QUEUED_DEAD_LETTERS) for one in page]) == 1
        store.clock.advance(NOTE_MS + 1)
        assert await dead_letters.queued("", 10) == []
        assert await dead_letters.expire(0) == 0
        assert [one async for page in store.records.scan(QUEUED_DEAD_LETTERS) for one in page] == []
        assert await dead_letters.count(Selection(status=DeadLetterStatus.PENDING)) == {"timeout": 1}


async def test_pending_letters_are_counted_without_the_others(engine: Engine) -> None:
    """However many have been replayed or given up: no dead letter is read for it."""
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        for number in range(1, 6):
            await dead_letters.add(dead_letter(number))
        assert await dead_letters.discard(Selection(ids=("dlq_01", "dlq_02")), "job_1", THROWN_AWAY) == 2
        lines = [one.dlq_id async for page in store.records.scan(PENDING_DEAD_LETTERS) for one in page]
        assert sorted(lines) == ["dlq_03", "dlq_04", "dlq_05"]
        async with store.operator() as other:
            await other.records.load(DEAD_LETTERS, [replace(dead_letter(3), error="another")])
        assert await dead_letters.count(Selection(status=DeadLetterStatus.PENDING)) == {"timeout": 3}
