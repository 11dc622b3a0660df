"""Receipts and changes of accounts on their way to webhooks."""

import asyncio
from typing import Any

import msgspec
import pytest

from parley.clock import iso
from parley.core.deliveries import Webhook
from parley.delivery.events import HOLD_MS, EventOutbox
from parley.ephemeral.signals import ReceiptSignal
from parley.errors import Refused, StoreUnavailable
from parley.model import AccountState, ReceiptKind, User
from parley.wire.frames import Entry
from tests.unit.delivery.world import HOOK, DeliveryWorld, away, play

ALL_EVENTS = ("receipt.delivered", "receipt.read", "account.created", "account.enabled", "account.disabled")


class Wanting:
    """A channel's answer: everything that is told in a stream."""

    async def wants(self, entry: Entry) -> bool:
        return True


async def with_outbox(world: DeliveryWorld, *events: str) -> EventOutbox:
    hook = Webhook(
        webhook_id=HOOK, url="https://a.example/", events=events or ALL_EVENTS, secret="s", created_ms=0
    )
    await world.kinds.deliveries.webhooks.add(hook)
    world.channel.wants = Wanting().wants  # type: ignore[method-assign]

    async def nudge(_: object) -> None:
        world.worker.look_soon()

    return EventOutbox(world.kinds.deliveries, world.clock, world.ids, nudge)


def told(world: DeliveryWorld) -> list[tuple[str, dict[str, Any]]]:
    return [(p.entry.kind, msgspec.json.decode(p.entry.content)) for p in world.channel.got]


def receipt(kind: ReceiptKind, up_to: int, user_id: str = "user_1", chat_id: str = "chat_1") -> ReceiptSignal:
    return ReceiptSignal(
        chat_id=chat_id,
        user_id=user_id,
        kind=kind,
        up_to=up_to,
        at="2026-01-01T00:00:00.000Z",
        is_public=True,
        is_named=True,
        hidden_from=[],
    )


async def add(world: DeliveryWorld, outbox: EventOutbox, user_id: str = "user_7") -> None:
    now_ms = world.clock()
    user = User(user_id, "gil", "Gil", "", False, iso(now_ms))
    async with outbox.created(user_id, now_ms):
        assert await world.kinds.accounts.add_user(user, "hash")


async def change(world: DeliveryWorld, outbox: EventOutbox, state: AccountState) -> None:
    async with outbox.changed("user_7"):
        await world.kinds.account_admin.set_state("user_7", state, "")


def test_a_receipt_is_told_once_with_the_newest_position() -> None:
    """Positions that rise while the receiver is away are one event; a later one is another."""

    async def scenario(world: DeliveryWorld) -> None:
        outbox = await with_outbox(world)
        back = world.clock() + 2_500
        away(world.channel, lambda _: world.clock() < back)
        async with world.working():
            for up_to in (3, 4, 9):
                outbox.receipt(receipt(ReceiptKind.READ, up_to))
                await asyncio.sleep(0.5)
            await asyncio.sleep(30)
            outbox.receipt(receipt(ReceiptKind.READ, 11))
            outbox.receipt(receipt(ReceiptKind.DELIVERED, 12))
            await asyncio.sleep(30)
        assert sorted(told(world)[-2:], key=str) == [
            ("receipt.delivered", {"user_id": "user_1", "up_to_sequence": 12}),
            ("receipt.read", {"user_id": "user_1", "up_to_sequence": 11}),
        ]
        assert told(world)[-3] == ("receipt.read", {"user_id": "user_1", "up_to_sequence": 9})
        assert len(told(world)) <= 4, "not one for each position"
        assert len({delivery.event_id for delivery in world.channel.got}) == len(told(world))
        assert await world.dead_letters() == []

    play(scenario)


def test_a_receipt_that_cannot_be_told_is_a_dead_letter() -> None:
    """One, which comes back by a replay with the same event id."""

    async def scenario(world: DeliveryWorld) -> None:
        outbox = await with_outbox(world)
        tried: list[str] = []
        away(world.channel, lambda delivery: not tried.append(delivery.event_id))  # type: ignore[func-returns-value]
        async with world.working():
            outbox.receipt(receipt(ReceiptKind.READ, 3))
            await asyncio.sleep(60)
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.chat_id, dead_letter.sequence) == ("receipt.read/chat_1/user_1", 3)
        assert len(tried) == 4
        assert len(set(tried)) == 1

    play(scenario)


def test_nothing_is_written_that_no_webhook_wants() -> None:
    """Neither receipts nor accounts."""

    async def scenario(world: DeliveryWorld) -> None:
        outbox = await with_outbox(world, "message.created")
        outbox.receipt(receipt(ReceiptKind.READ, 3))
        await add(world, outbox)
        await asyncio.sleep(1)
        assert await world.kinds.deliveries.queues.due("", 2**60, 10) == []

    play(scenario)


def test_an_account_is_told_from_its_creation_on() -> None:
    """In order, each change with what is so by then."""

    async def scenario(world: DeliveryWorld) -> None:
        outbox = await with_outbox(world)
        async with world.working():
            await add(world, outbox)
            for state in (AccountState.DISABLED, AccountState.ACTIVE):
                await asyncio.sleep(1)
                await change(world, outbox, state)
            await asyncio.sleep(1)
        kinds = [kind for kind, _ in told(world)]
        assert kinds == ["account.created", "account.disabled", "account.enabled"]
        assert told(world)[1][1] == {"user_id": "user_7", "username": "gil", "state": "disabled"}

    play(scenario)


def test_a_creation_is_told_also_when_more_happened_since() -> None:
    """The receiver was away: it hears of the creation, and how the account is now."""

    async def scenario(world: DeliveryWorld) -> None:
        outbox = await with_outbox(world)
        back = world.clock() + 2_500
        away(world.channel, lambda _: world.clock() < back)
        async with world.working():
            await add(world, outbox)
            for state in (AccountState.DISABLED, AccountState.ACTIVE, AccountState.DISABLED):
                await asyncio.sleep(0.1)
                await change(world, outbox, state)
            await asyncio.sleep(30)
        assert [kind for kind, _ in told(world)] == ["account.created", "account.disabled"]

    play(scenario)


def test_a_process_that_dies_after_a_change_has_noted_it() -> None:
    """Nothing tells the workers: they find it when the hold has run out."""

    async def scenario(world: DeliveryWorld) -> None:
        outbox = await with_outbox(world)
        really_add = world.kinds.accounts.add_user

        async def add_user(user: User, password_hash: str) -> bool:
            await really_add(user, password_hash)
            raise StoreUnavailable("and nobody knows whether it was done")

        world.kinds.accounts.add_user = add_user  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await add(world, outbox)
        async with world.working():
            await asyncio.sleep(HOLD_MS / 1_000 - 1)
            assert told(world) == []
            await asyncio.sleep(12)
        assert [kind for kind, _ in told(world)] == ["account.created"]

    play(scenario)


def test_a_change_that_is_refused_is_not_told() -> None:
    """Neither at once nor later."""

    async def scenario(world: DeliveryWorld) -> None:
        outbox = await with_outbox(world)
        async with world.working():
            with pytest.raises(Refused):
                await change(world, outbox, AccountState.DISABLED)
            await asyncio.sleep(60)
        assert told(world) == []

    play(scenario)
