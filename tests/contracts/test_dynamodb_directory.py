"""What is promised of chats and people on DynamoDB alone: big chats, lost answers, several nodes."""

import asyncio

import pytest

from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.model import Action, ChatType, Role, StoredChat
from parley.store.dynamodb.directory import MEMBERS_AT_ONCE_MAX
from parley.store.dynamodb.driver import Fault
from parley.testing.dynamodb_faults import conflict, throttle, timeout_done, timeout_not_done
from tests.contracts.acting import add_people, change, listed, message, new_chat, outcome, stored, told
from tests.contracts.dynamodb_engine import DynamoEngine, DynamoOpenStore
from tests.contracts.dynamodb_nodes import Later, On, item, nodes, refuse
from tests.contracts.test_accounts import add_session, new_user
from tests.harness.fault_plans import Planned

ATOMIC = DynamoEngine(None)
LOST: list[Fault] = [timeout_done, timeout_not_done]
BIG = MEMBERS_AT_ONCE_MAX + 5


async def big_group(store: DynamoOpenStore) -> tuple[StoredChat, list[str]]:
    """A group that does not fit in one transaction, not yet created, and its people, the owner first."""
    people = await add_people(store, *(f"p{number}" for number in range(BIG)))
    return new_chat(store, people[0]), people


@pytest.mark.parametrize("members", [MEMBERS_AT_ONCE_MAX, MEMBERS_AT_ONCE_MAX + 1, BIG])
async def test_a_chat_of_any_size_is_whole(members: int) -> None:
    """Around the bound of one transaction, everybody is in, finds the chat, and may write."""
    async with ATOMIC.opened() as store:
        people = await add_people(store, *(f"p{number}" for number in range(members)))
        chat, created = await store.directory.create_chat(new_chat(store, people[0]), people)
        found = await store.directory.members(chat.chat_id, "", 1000)
        assert (created, [member.user_id for member in found]) == (True, sorted(people))
        assert [member.role for member in found].count(Role.OWNER) == 1
        assert await store.directory.member_count(chat.chat_id) == members
        for person in (people[0], people[-1]):
            assert await store.directory.chat_ids_of(person) == [chat.chat_id]
            assert (await listed(store, person, None))[0] == [chat.chat_id]
        assert told(await outcome(store, message(chat.chat_id, people[-1]))) == "stored"


@pytest.mark.parametrize(
    ("fault", "raised"), [(refuse, StoreUnavailable), (timeout_not_done, OutcomeUnknown)]
)
async def test_a_big_chat_that_was_never_finished_is_nowhere(fault: Fault, raised: type[StoreError]) -> None:
    """Members that were written before a chat that did not follow see nothing of it."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        chat, people = await big_group(store)
        faults.now = On(fault, "TransactWriteItems")
        with pytest.raises(raised):
            await store.directory.create_chat(chat, people)
        for person in (people[0], people[-1]):
            assert await store.directory.role(chat.chat_id, person) is None
            assert await store.directory.chat_ids_of(person) == []
            assert (await listed(store, person, None))[0] == []
        assert await store.directory.members(chat.chat_id, "", 1000) == []
        assert await store.directory.member_count(chat.chat_id) == 0
        assert told(await outcome(store, message(chat.chat_id, people[1]))) == "not_a_member"


async def test_a_big_chat_that_was_refused_leaves_nothing_behind() -> None:
    """Rows of a chat that certainly does not exist are taken back."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        chat, people = await big_group(store)
        faults.now = On(refuse, "TransactWriteItems")
        with pytest.raises(StoreUnavailable):
            await store.directory.create_chat(chat, people)
        for table in ("chat_memberships", "delivery_state"):
            assert (await store.store.dynamo.scan(table)).items == []


@pytest.mark.parametrize("chat_type", ChatType)
@pytest.mark.parametrize("fault", [*LOST, conflict, throttle])
async def test_a_chat_is_created_through_faults(fault: Fault, chat_type: ChatType) -> None:
    """A lost answer, a conflict and throttling all end in one chat that is new."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, ben = await add_people(store, "ann", "ben")
        faults.now = Planned(TransactWriteItems=[fault])
        chat, created = await store.directory.create_chat(new_chat(store, ann, chat_type), [ben])
        assert (created, await store.directory.chat(chat.chat_id)) == (True, chat)
        assert await store.directory.chat_ids_of(ben) == [chat.chat_id]


async def test_two_nodes_agree_on_a_direct_chat() -> None:
    """Both people ask at once on different nodes: one chat, created once."""
    async with nodes(2) as (one, other):
        ann, ben = await add_people(one, "ann", "ben")
        made = await asyncio.gather(
            *(
                node.directory.create_chat(new_chat(node, me, ChatType.DIRECT), [you])
                for node, me, you in [(one, ann, ben), (other, ben, ann)] * 4
            )
        )
        assert len({chat.chat_id for chat, _ in made}) == 1
        assert [created for _, created in made].count(True) == 1


async def test_a_chat_without_its_numbers_does_not_exist() -> None:
    """In two_phase the allocator comes first: if it fails, nothing was made."""
    faults = Later()
    async with DynamoEngine("dynamodb").opened(faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        faults.now = On(refuse, "UpdateItem", "chat_counters")
        chat = new_chat(store, ann)
        with pytest.raises(StoreUnavailable):
            await store.directory.create_chat(chat, [])
        assert await store.directory.chat(chat.chat_id) is None


async def test_counter_and_chat_start_with_one_revision() -> None:
    """Writers compare the revision of either item, so both begin with the same."""
    async with ATOMIC.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat, _ = await store.directory.create_chat(new_chat(store, ann), [])
        counter = await item(store, "chat_counters", chat_id=chat.chat_id)
        revision = (await item(store, "chats", chat_id=chat.chat_id))["membership_revision"]
        assert counter["membership_revision"] == revision
        assert (counter["sequence_counter"], counter["written_through"], counter["epoch"]) == (0, 0, 1)


@pytest.mark.parametrize("odd", ["", "x" * 5_000, "chat_\ud800"])
async def test_what_cannot_be_a_key_is_not_found(odd: str) -> None:
    """Names that DynamoDB would not even look for have empty answers."""
    async with ATOMIC.opened() as store:
        assert await store.directory.chat(odd) is None
        assert await store.directory.role(odd, odd) is None
        assert await store.directory.members(odd, "", 10) == []
        assert (await store.directory.chat_ids_of(odd), await store.accounts.user(odd)) == ([], None)
        assert (await store.accounts.user_by_name(odd), await store.sessions.of(odd)) == (None, [])
        assert await store.sessions.end(odd, [odd]) == []
        assert await store.cursors.position(odd, "phone", odd) == 0


# People


@pytest.mark.parametrize("fault", LOST)
async def test_a_person_is_added_when_the_answer_is_lost(fault: Fault) -> None:
    """A lost answer is no taken name."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        faults.now = Planned(TransactWriteItems=[fault])
        user = new_user(store, "ann")
        assert await store.accounts.add_user(user, "hash")
        assert not await store.accounts.add_user(new_user(store, "ann"), "hash")
        assert await store.accounts.user_by_name("ann") == (user, "hash")


async def test_a_name_stays_unknown_only_while_it_is() -> None:
    """When no attempt was answered but the first was done, the name is found to be ours."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        faults.now = Planned(PutItem=[timeout_done, timeout_not_done, timeout_not_done])
        assert await store.accounts.add_user(new_user(store, "ann"), "hash")
        faults.now = On(timeout_not_done, "PutItem")
        with pytest.raises(OutcomeUnknown):
            await store.accounts.add_user(new_user(store, "ben"), "hash")


async def test_two_nodes_give_a_name_once() -> None:
    """Of two nodes that add the same name at once, one does."""
    async with nodes(2) as stores:
        added = await asyncio.gather(
            *(store.accounts.add_user(new_user(store, "ann"), "hash") for store in stores * 3)
        )
        assert added.count(True) == 1


@pytest.mark.parametrize("fault", LOST)
async def test_a_session_ends_when_the_answer_is_lost(fault: Fault) -> None:
    """A lost answer never leaves a revoked session alive, nor its place in the list."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        session = await add_session(store, ann, "phone", b"1")
        faults.now = Planned(TransactWriteItems=[fault])
        assert await store.sessions.end(ann, [session.session_id]) == [session.session_id]
        assert await store.sessions.by_token(b"1") is None
        assert await store.sessions.of(ann) == []


async def test_a_profile_of_nobody_is_not_made() -> None:
    """Changing somebody who does not exist makes nobody."""
    async with ATOMIC.opened() as store:
        user = new_user(store, "ann")
        await store.accounts.update_user(user)
        assert await store.accounts.user(user.user_id) is None


async def test_a_member_of_a_big_chat_can_leave_it() -> None:
    """Whoever was written early leaves and is gone, like anybody."""
    async with ATOMIC.opened() as store:
        chat, people = await big_group(store)
        await store.directory.create_chat(chat, people)
        await stored(store, change(chat.chat_id, people[-1], Action.LEFT, people[-1]))
        assert await store.directory.role(chat.chat_id, people[-1]) is None
        assert await store.directory.member_count(chat.chat_id) == BIG - 1
