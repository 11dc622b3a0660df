"""The promises of the ports of push, and of what `MemberStates` says to it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from parley.core.push_devices import (
    DEVICES_PER_PERSON_MAX,
    NotificationOutcome,
    Provider,
    PushDevice,
    PushOutcome,
)
from parley.model import Fanout
from tests.contracts.acting import add_group, add_people
from tests.contracts.engines import ENGINES, Engine

PHONE = PushDevice(
    user_id="user_a", device_id="phone", provider=Provider.APNS, address="token 1", created_ms=1_000
)
BROWSER = PushDevice(
    user_id="user_a",
    device_id="browser",
    provider=Provider.WEBPUSH,
    address="https://push.example/1",
    public_key="key",
    auth="auth",
    preview=False,
    secret="secret",
    created_ms=2_000,
)
RUNG = PushOutcome(
    chat_id="chat_1",
    sequence=7,
    user_id="user_a",
    device_id="phone",
    provider=Provider.APNS,
    outcome=NotificationOutcome.RINGING,
    detail="",
    at_ms=1_000,
)


async def test_devices_survive_a_restart(engine: Engine) -> None:
    """What a person registered is read back whole, in the order of the devices' ids."""
    async with engine.opened() as store:
        assert not await store.push.devices.are_there()
        assert await store.push.devices.put(PHONE)
        assert await store.push.devices.put(BROWSER)
        await store.reopen()
        assert await store.push.devices.of(["user_a", "user_b"]) == {"user_a": [BROWSER, PHONE]}
        assert await store.push.devices.are_there()


async def test_a_device_is_replaced(engine: Engine) -> None:
    """A device that registers again has its new token alone."""
    async with engine.opened() as store:
        renewed = replace(PHONE, address="token 2")
        await store.push.devices.put(PHONE)
        await store.push.devices.put(renewed)
        assert await store.push.devices.of(["user_a"]) == {"user_a": [renewed]}


async def test_a_dead_token_removes_no_new_one(engine: Engine) -> None:
    """A device that registered again meanwhile stays."""
    async with engine.opened() as store:
        devices = store.push.devices
        await devices.put(replace(PHONE, address="token 2"))
        assert not await devices.remove("user_a", "phone", "token 1")
        assert await devices.remove("user_a", "phone", "token 2")
        assert not await devices.remove("user_a", "phone")
        assert await devices.of(["user_a"]) == {}


async def test_a_person_has_so_many_devices(engine: Engine) -> None:
    """One more is not stored, but those that exist can still be replaced."""
    async with engine.opened() as store:
        devices = store.push.devices
        for n in range(DEVICES_PER_PERSON_MAX):
            assert await devices.put(replace(PHONE, device_id=f"phone {n}"))
        assert not await devices.put(PHONE)
        assert await devices.put(replace(PHONE, device_id="phone 3", address="new"))
        assert len((await devices.of(["user_a"]))["user_a"]) == DEVICES_PER_PERSON_MAX


async def test_the_last_outcome_counts(engine: Engine) -> None:
    """One outcome for each message and device, and it survives a restart."""
    async with engine.opened() as store:
        pushed = replace(RUNG, outcome=NotificationOutcome.PUSHED, detail="200", at_ms=2_000)
        other = replace(RUNG, user_id="user_b", outcome=NotificationOutcome.SKIPPED, detail="muted")
        for outcome in (RUNG, other, pushed, replace(RUNG, sequence=8)):
            await store.push.outcomes.note(outcome)
        await store.reopen()
        assert await store.push.outcomes.of_message("chat_1", 7) == [pushed, other]
        assert await store.push.outcomes.find("chat_1", 7, "user_a", "phone") == pushed
        assert await store.push.outcomes.find("chat_1", 7, "user_a", "browser") is None


async def test_the_newest_ring_of_a_device_is_known(engine: Engine) -> None:
    """Of each chat and device, what a provider has or may have; it never goes back."""
    async with engine.opened() as store:
        outcomes = store.push.outcomes
        assert await outcomes.rung_through("chat_1", "user_a", "phone") == 0
        pushed = replace(RUNG, sequence=9, outcome=NotificationOutcome.PUSHED)
        skipped = replace(RUNG, sequence=11, outcome=NotificationOutcome.SKIPPED)
        failed = replace(RUNG, sequence=12, outcome=NotificationOutcome.FAILED)
        for outcome in (pushed, RUNG, skipped, failed, replace(RUNG, sequence=10, device_id="tablet")):
            await outcomes.note(outcome)
        await store.reopen()
        outcomes = store.push.outcomes
        assert await outcomes.rung_through("chat_1", "user_a", "phone") == 9
        assert await outcomes.rung_through("chat_1", "user_a", "tablet") == 10
        assert await outcomes.rung_through("chat_2", "user_a", "phone") == 0


@pytest.mark.parametrize("name", ["memory-atomic", "sqlite-atomic"])
async def test_old_outcomes_expire(name: str, tmp_path: Path) -> None:
    """DynamoDB does it by itself."""
    async with ENGINES[name](tmp_path).opened() as store:
        outcomes = store.push.outcomes
        await outcomes.note(RUNG)
        await outcomes.note(replace(RUNG, sequence=8, at_ms=2_000))
        assert await outcomes.expire(2_000) == 1
        assert await outcomes.of_message("chat_1", 7) == []
        assert len(await outcomes.of_message("chat_1", 8)) == 1


async def test_the_first_key_stays(engine: Engine) -> None:
    """Nodes that start at the same time use one key."""
    async with engine.opened() as store:
        assert await store.kinds.server_keys.key("vapid", "one") == "one"
        assert await store.kinds.server_keys.key("vapid", "two") == "one"
        await store.reopen()
        assert await store.kinds.server_keys.key("vapid", "three") == "one"


async def test_a_strategy_is_chosen_and_given_up(engine: Engine) -> None:
    """Without a choice the size of the chat decides."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        fanouts = store.push.fanouts
        assert await fanouts.of(chat) is None
        await fanouts.choose(chat, Fanout.READ)
        await store.reopen()
        assert await store.push.fanouts.of(chat) is Fanout.READ
        await store.push.fanouts.choose(chat, None)
        assert await store.push.fanouts.of(chat) is None
