"""What a check finds on DynamoDB alone; on every engine: tests/contracts/test_inspection.py."""

from collections.abc import Awaitable, Callable

import pytest

from parley.clock import from_iso
from parley.store.dynamodb import scans
from parley.store.dynamodb.driver import Dynamo, Item
from parley.store.dynamodb.inspection import DynamoInspection
from parley.store.invariants import INVARIANTS
from tests.contracts import test_inspection
from tests.integration.dynamodb.filled import BEGINNING, DIRECT, GROUP, at, check, filled, set_in
from tests.integration.small_world import GROUP_ENTRIES

BEN_IN_GROUP: Item = {"user_id": "user_ben", "chat_id": "chat_group"}


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


async def lose_counter(dynamo: Dynamo) -> None:
    await dynamo.batch_delete("chat_counters", [GROUP])


async def lose_entry(dynamo: Dynamo, sequence: int = 2) -> None:
    await dynamo.batch_delete("messages", [at(sequence)])


async def copy_entry(dynamo: Dynamo, sequence: int) -> None:
    """Another entry with everything of an entry but its place."""
    entry = await dynamo.get("messages", at(2))
    assert entry is not None
    await dynamo.put("messages", entry | {"sequence": sequence})


async def take_key(dynamo: Dynamo) -> None:
    """Message 2 gets the client id of message 1."""
    first = await dynamo.get("messages", at(1))
    assert first is not None
    await set_in(dynamo, "messages", at(2), client_message_id=first["client_message_id"])


async def change_key(dynamo: Dynamo, **wrong: int | str) -> None:
    """The key of message 2 says something else."""
    second = await dynamo.get("messages", at(2))
    assert second is not None
    key: Item = {"chat_id": "chat_group", "client_message_id": second["client_message_id"]}
    await set_in(dynamo, "idempotency_keys", key, **wrong)


Breaking = Callable[[Dynamo], Awaitable[None]]


def alone_at(name: str) -> Item:
    """The key of a record that has a partition to itself."""
    return {"partition": name, "place": "-"}


BREAKING: dict[str, list[Breaking]] = {
    "counter_must_exist": [lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=None)],
    "counter_is_last_allocated": [
        lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=9),
        lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=9, written_through=9),
        lambda d: lose_entry(d, GROUP_ENTRIES),
    ],
    "sequence_uniqueness": [lambda d: set_in(d, "messages", at(1), kind="bundle", through=2)],
    "idempotency_sequence_consistency": [
        lambda d: change_key(d, sequence=1),
        lose_entry,
        lambda d: change_key(d, message_id="msg_00000000000000000000000000"),
        lambda d: change_key(d, sender_id="user_x"),
    ],
    "no_zero_sequence": [lambda d: copy_entry(d, 0), lambda d: copy_entry(d, -3)],
    "stored_in_order": [
        lambda d: set_in(
            d,
            "messages",
            at(2),
            created_at="2100-01-02T00:00:00.000Z",
            server_timestamp="2100-01-02T00:00:00.000Z",
        )
    ],
    "idempotency_guarantee": [take_key],
    "wire_agreement": [
        lambda d: set_in(d, "messages", at(2), epoch=7),
        lambda d: set_in(d, "messages", at(2), message_id="msg_00000000000000000000000000"),
        lambda d: set_in(d, "messages", at(2), server_timestamp=BEGINNING),
        lambda d: set_in(d, "messages", at(2), sender_id=None),
        lambda d: set_in(d, "messages", at(4), content="a void that speaks"),
        lambda d: set_in(d, "messages", at(4), client_message_id="6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
        lambda d: set_in(d, "messages", at(4), message_id="msg_00000000000000000000000000"),
        lambda d: set_in(d, "messages", at(4), sender_id="user_ann"),
    ],
    "membership": [
        lambda d: set_in(d, "chat_memberships", {**GROUP, "user_id": "user_ann"}, role="king"),
        lambda d: set_in(d, "chat_memberships", {**GROUP, "user_id": "user_cas"}, joined_sequence=99),
        lambda d: set_in(d, "chats", GROUP, member_count=2),
        lambda d: set_in(d, "delivery_state", BEN_IN_GROUP, has_left=True),
    ],
    "direct_uniqueness": [
        lambda d: set_in(d, "chats", GROUP, direct_key="user_ann|user_ben"),
        lambda d: set_in(d, "direct_chats", {"direct_key": "user_ann|user_ben"}, chat_id="chat_group"),
    ],
    "references": [
        lambda d: d.batch_delete("chats", [DIRECT]),
        lambda d: d.batch_delete("records_usernames", [alone_at("ben")]),
        lambda d: d.batch_delete("records_people", [alone_at("user_ben")]),
        lambda d: d.batch_delete("records_user_sessions", [{"partition": "user_ben", "place": "ses_ben"}]),
    ],
    "schema": [lambda d: d.call("DeleteTable", {"TableName": d.table("direct_chats")})],
}
CASES = [(invariant, number) for invariant, ways in BREAKING.items() for number in range(len(ways))]


@pytest.mark.parametrize(("invariant", "way"), CASES)
async def test_a_broken_invariant_is_named(invariant: str, way: int) -> None:
    """What somebody breaks with the console is found under the invariant's own name, with what to do."""
    async with filled() as dynamo:
        await BREAKING[invariant][way](dynamo)
        found = [breach for breach in (await check(dynamo)).breaches if breach.invariant == invariant]
        assert found
        assert all(breach.says and breach.remedy for breach in found)


def test_every_invariant_is_shown_to_be_checked() -> None:
    """No name is promised without tables that break it, here or on every engine."""
    on_every_engine = {invariant for invariant, _ in test_inspection.BREAKING.values()}
    assert {*BREAKING, *on_every_engine} == set(INVARIANTS) - DynamoInspection.not_shown


async def test_an_open_number_is_no_breach() -> None:
    """In two_phase a number that was taken and not yet written is open, in the middle and at the end."""
    async with filled(two_phase=True) as dynamo:
        await set_in(dynamo, "chats", GROUP, resolved_through=4)
        await lose_entry(dynamo, 5)
        await set_in(dynamo, "chat_counters", GROUP, sequence_counter=GROUP_ENTRIES + 2)
        findings = await check(dynamo, "chat_group", two_phase=True)
        told = [b for b in findings.breaches if b.invariant != "idempotency_sequence_consistency"]
        assert (told, findings.open_allocations) == ([], 3)


async def test_an_id_may_be_used_again_after_its_days() -> None:
    """Two messages of one id are no breach when the first one's key has long expired."""
    async with filled() as dynamo:
        await take_key(dynamo)
        much_later = from_iso("2100-02-01T00:00:00Z")
        assert (await check(dynamo, clock=lambda: much_later)).counts["idempotency_guarantee"] == 0


async def test_what_was_trimmed_is_not_missing() -> None:
    """Entries at or below the trim mark may be gone, with the positions and keys that name them."""
    async with filled() as dynamo:
        await set_in(dynamo, "chats", GROUP, trimmed_through=3)
        for sequence in (1, 2, 3):
            await lose_entry(dynamo, sequence)
        assert (await check(dynamo)).breaches == []


async def test_rows_of_a_chat_that_is_being_created_are_no_breach() -> None:
    """Early rows and a counter at 0 come before their chat, and may stay behind one that never came."""
    async with filled() as dynamo:
        early: Item = {"chat_id": "chat_new", "user_id": "user_ben", "early": True}
        await dynamo.put("chat_memberships", early | {"role": "member"})
        await dynamo.put("delivery_state", early | {"has_left": False})
        await dynamo.put("chat_counters", {"chat_id": "chat_new", "sequence_counter": 0})
        assert (await check(dynamo)).breaches == []


async def test_strays_in_the_big_tables_are_found_only_when_asked() -> None:
    """Entries of no chat are found by reading everything once more, which can be left out."""
    async with filled() as dynamo:
        entry = await dynamo.get("messages", at(1))
        assert entry is not None
        await dynamo.put("messages", entry | {"chat_id": "chat_nowhere"})
        assert (await check(dynamo, whole=False)).is_clean
        assert (await check(dynamo)).counts == {"references": 1}
