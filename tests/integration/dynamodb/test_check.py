"""Each invariant, by its name, on DynamoDB: whole tables keep it, and tables that break it are caught."""

from collections.abc import Awaitable, Callable

import pytest

from parley.clock import from_iso
from parley.store.checks import INVARIANTS, Progress
from parley.store.dynamodb import looking
from parley.store.dynamodb.check import NOT_SHOWN
from parley.store.dynamodb.client import Dynamo, Item
from tests.integration.dynamodb.filled import DIRECT, GROUP, at, check, filled, set_in
from tests.integration.small_world import BEGINNING, GROUP_ENTRIES

ANN_OF_BEN: Item = {"user_id": "user_ann", "other_id": "user_ben"}
BEN_IN_GROUP: Item = {"user_id": "user_ben", "chat_id": "chat_group"}


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LOOK_AGAIN_SECONDS", 0.0)


async def lose_counter(dynamo: Dynamo) -> None:
    await dynamo.delete("chat_counters", GROUP)


async def lose_entry(dynamo: Dynamo, sequence: int = 2) -> None:
    await dynamo.delete("messages", at(sequence))


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


async def lose_last(dynamo: Dynamo) -> None:
    await lose_entry(dynamo, GROUP_ENTRIES)


Breaking = Callable[[Dynamo], Awaitable[None]]
BREAKING: dict[str, list[Breaking]] = {
    "counter_must_exist": [
        lose_counter,
        lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=None),
    ],
    "counter_is_last_allocated": [
        lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=9),
        lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=9, written_through=9),
        lose_last,
    ],
    "sequence_monotonicity": [lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=5)],
    "counter_lower_bound": [lambda d: set_in(d, "chat_counters", GROUP, sequence_counter=4)],
    "idempotency_sequence_consistency": [
        lambda d: change_key(d, sequence=1),
        lose_entry,
        lambda d: change_key(d, message_id="msg_00000000000000000000000000"),
        lambda d: change_key(d, sender_id="user_x"),
    ],
    "ack_implies_persistence": [lambda d: lose_entry(d, 3)],
    "no_zero_sequence": [lambda d: copy_entry(d, 0), lambda d: copy_entry(d, -3)],
    "gap_is_allocation_without_persistence": [lose_entry],
    "sequence_monotonic": [
        lambda d: set_in(
            d,
            "messages",
            at(2),
            created_at="2026-01-02T00:00:00.000Z",
            server_timestamp="2026-01-02T00:00:00.000Z",
        )
    ],
    "idempotency_guarantee": [take_key],
    "sync_completeness": [lambda d: set_in(d, "messages", at(2), content=None), lose_entry],
    "delivery_state_consistency": [
        lambda d: set_in(d, "delivery_state", BEN_IN_GROUP, read_up_to=99),
        lambda d: set_in(d, "delivery_state", BEN_IN_GROUP, read_up_to=5),
    ],
    "log_density": [lambda d: lose_entry(d, 4), lose_last],
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
        lambda d: set_in(d, "chat_memberships", {**GROUP, "user_id": "user_ann"}, role="member"),
        lambda d: set_in(d, "chat_memberships", {**GROUP, "user_id": "user_ann"}, role="king"),
        lambda d: set_in(d, "chat_memberships", {**GROUP, "user_id": "user_cas"}, joined_sequence=99),
        lambda d: set_in(d, "chats", GROUP, member_count=2),
        lambda d: d.delete("delivery_state", BEN_IN_GROUP),
        lambda d: set_in(d, "delivery_state", BEN_IN_GROUP, has_left=True),
        lambda d: d.delete("users", {"user_id": "user_cas"}),
        lambda d: set_in(d, "chat_memberships", {**DIRECT, "user_id": "user_ben"}, is_blocked=None),
        lambda d: set_in(d, "chat_memberships", {**DIRECT, "user_id": "user_ann"}, is_blocked=True),
        lambda d: set_in(d, "relations", ANN_OF_BEN, blocked_since=None),
    ],
    "direct_uniqueness": [
        lambda d: set_in(d, "chats", DIRECT, direct_key="user_ann|user_cas"),
        lambda d: set_in(d, "chats", GROUP, direct_key="user_ann|user_ben"),
        lambda d: set_in(d, "direct_chats", {"direct_key": "user_ann|user_ben"}, chat_id="chat_group"),
    ],
    "references": [
        lambda d: d.delete("chats", DIRECT),
        lambda d: d.delete("usernames", {"username": "ben"}),
        lambda d: d.delete("users", {"user_id": "user_ben"}),
        lambda d: d.delete("sessions", {"token_hash": b"hash of a token"}),
        lambda d: d.delete("user_sessions", {"user_id": "user_ben", "session_id": "ses_ben"}),
        lambda d: set_in(d, "users", {"user_id": "user_ann"}, contact_count=2),
        lambda d: set_in(d, "users", {"user_id": "user_ann"}, block_count=None),
        lambda d: set_in(d, "users", {"user_id": "user_cas"}, block_count=1),
        lambda d: d.delete("relations", ANN_OF_BEN),
        lambda d: d.put("relations", {"user_id": "user_ann", "other_id": "user_x"}),
        lambda d: d.put("relations", {"user_id": "user_x", "other_id": "user_ann"}),
    ],
    "schema": [lambda d: d.call("DeleteTable", {"TableName": d.table("direct_chats")})],
}
CASES = [(invariant, number) for invariant, ways in BREAKING.items() for number in range(len(ways))]


@pytest.mark.parametrize("two_phase", [False, True])
async def test_whole_tables_keep_every_invariant(two_phase: bool) -> None:
    """Nothing is found in tables that only the store's own rooms have written, in both modes."""
    async with filled(two_phase=two_phase) as dynamo:
        findings = await check(dynamo, is_atomic=not two_phase)
        assert findings.breaches == []
        assert (findings.chats, findings.entries, findings.voids) == (2, GROUP_ENTRIES, 1)
        assert findings.open_allocations == 0


@pytest.mark.parametrize(("invariant", "way"), CASES)
async def test_a_broken_invariant_is_named(invariant: str, way: int) -> None:
    """What somebody breaks with the console is found under the invariant's own name, with what to do."""
    async with filled() as dynamo:
        await BREAKING[invariant][way](dynamo)
        found = [breach for breach in (await check(dynamo)).breaches if breach.invariant == invariant]
        assert found
        assert all(breach.says and breach.remedy for breach in found)


def test_every_invariant_is_shown_to_be_checked() -> None:
    """No name is promised without tables here that break it."""
    assert set(BREAKING) == set(INVARIANTS) - NOT_SHOWN


@pytest.mark.parametrize("sequence", range(1, GROUP_ENTRIES + 1))
async def test_a_lost_entry_is_found_wherever_it_was(sequence: int) -> None:
    """A position that is gone is told by its own number."""
    async with filled() as dynamo:
        await lose_entry(dynamo, sequence)
        found = (await check(dynamo)).breaches
        assert {breach.sequence for breach in found if breach.invariant == "log_density"} == {sequence}


async def test_an_open_number_is_no_breach() -> None:
    """In two_phase a number that was taken and not yet written is open, in the middle and at the end."""
    async with filled(two_phase=True) as dynamo:
        await set_in(dynamo, "chats", GROUP, resolved_through=4)
        await lose_entry(dynamo, 5)
        await set_in(dynamo, "chat_counters", GROUP, sequence_counter=GROUP_ENTRIES + 2)
        findings = await check(dynamo, "chat_group", is_atomic=False)
        told = [b for b in findings.breaches if b.invariant != "idempotency_sequence_consistency"]
        assert (told, findings.open_allocations) == ([], 3)


async def test_a_hole_below_what_was_resolved_is_a_breach_in_two_phase() -> None:
    """What readers have passed cannot be open."""
    async with filled(two_phase=True) as dynamo:
        await lose_entry(dynamo, 2)
        assert (await check(dynamo, is_atomic=False)).counts["log_density"] == 1


async def test_an_expired_key_is_no_breach() -> None:
    """A key that was let go after its days leaves its message whole."""
    async with filled() as dynamo:
        for key in (await dynamo.scan("idempotency_keys")).items:
            await dynamo.delete("idempotency_keys", {n: key[n] for n in ("chat_id", "client_message_id")})
        assert (await check(dynamo)).is_clean


async def test_an_id_may_be_used_again_after_its_days() -> None:
    """Two messages of one id are no breach when the first one's key has long expired."""
    async with filled() as dynamo:
        await take_key(dynamo)
        much_later = from_iso("2026-02-01T00:00:00Z")
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


async def test_only_the_named_chats_are_checked() -> None:
    """A breach in one chat is not told when another was asked for; positions of its members are."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        await set_in(dynamo, "delivery_state", BEN_IN_GROUP, read_up_to=99)
        assert (await check(dynamo, "chat_direct")).is_clean
        counts = (await check(dynamo, "chat_group")).counts
        assert counts == {"counter_must_exist": 1, "delivery_state_consistency": 2}


async def test_strays_in_the_big_tables_are_found_only_when_asked() -> None:
    """Entries of no chat are found by reading everything once more, which can be left out."""
    async with filled() as dynamo:
        entry = await dynamo.get("messages", at(1))
        assert entry is not None
        await dynamo.put("messages", entry | {"chat_id": "chat_nowhere"})
        assert (await check(dynamo, whole=False)).is_clean
        assert (await check(dynamo)).counts == {"references": 1}


async def test_a_check_tells_how_far_it_is() -> None:
    """Progress rises to all chats and all entries."""
    async with filled() as dynamo:
        told: list[Progress] = []
        findings = await check(dynamo, tell=told.append)
        assert told[-1] == Progress(2, 2, findings.entries)
        assert [progress.entries for progress in told] == sorted(progress.entries for progress in told)


async def test_a_check_changes_nothing() -> None:
    """Nothing is written by a check."""
    async with filled() as dynamo:
        await lose_entry(dynamo)
        before = dict(dynamo.capacity.write_units)
        await check(dynamo)
        assert dict(dynamo.capacity.write_units) == before
