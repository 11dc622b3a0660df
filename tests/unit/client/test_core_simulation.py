"""The pure core against a model server and a network that hurts: many short lives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.core.message_actions import MessageState, replay
from parley.wire.frames import Entry
from tests.model_server.lives import HURTFUL, ON_A_GOOD_LINE, ORDINARY, STARTING_OVER, happen
from tests.model_server.world import CHAT_IDS, DEVICES, PEOPLE, WALL_MS, World
from tests.seeds import SHRINK_SECONDS_MAX


def check_promises(world: World) -> None:
    for person in world.people:
        for chat_id in CHAT_IDS:
            stored = world.server.stored_ids(chat_id, person.user_id)
            wanted = [cid for cid in person.sent[chat_id] if cid not in person.refused]
            assert [cid for cid in stored if cid in wanted] == wanted, (
                "sender order, each stored exactly once"
            )
            assert len(stored) == len(set(stored)), "nothing twice"
            if chat_id not in person.has_left:
                assert not set(stored) & person.refused, "what was refused is not stored"
    check_readers(world)


def check_readers(world: World) -> None:
    for person in world.people:
        for chat_id, log in world.server.logs.items():
            shown = [entry for entry in log if entry is not None]
            if shown and person.is_in(chat_id):
                seen = person.seen[chat_id]
                assert places(seen) == places(shown), "every reader sees the whole log in its order, once"
                assert as_shown(replay(seen)) == naively(shown), "and shows what a replay of it shows"
            if log and person.is_in(chat_id):
                assert person.cursors[chat_id].sequence == len(log), "the cursor is written down"
            assert person.core.chat(chat_id).log_difference is None, "the log is what was read"
        assert not person.calls, "nobody waits for what is done"
    check_list(world)


def places(entries: list[Entry]) -> list[tuple[int, str, str]]:
    return [(entry.sequence, entry.kind, entry.message_id) for entry in entries]


Shown = dict[str, tuple[str, set[tuple[str, str]], set[str]]]
"""By message: its text, who reacted to it how, and its replies."""
GONE = "gone"


def as_shown(states: dict[str, MessageState]) -> Shown:
    """What an application shows that follows the log, entry by entry, as it came."""
    return {
        key: (
            GONE if state.entry.deleted is True else state.entry.content,
            {(who, one.reaction) for one in state.reactions for who in one.user_ids},
            state.replies,
        )
        for key, state in states.items()
    }


def naively(log: list[Entry]) -> Shown:
    """The same from the log as it is stored now, said in the simplest way."""
    text: dict[str, str] = {}
    reactions: dict[str, set[tuple[str, str]]] = {}
    about: dict[str, str] = {}
    for entry in log:
        target = entry.target_id or ""
        if entry.kind == "message":
            text[entry.message_id] = GONE if entry.deleted is True else entry.content
            reactions[entry.message_id] = set()
            if entry.reply_to:
                about[entry.message_id] = entry.reply_to
        elif entry.kind == "delete" and target in text:
            text[target], reactions[target] = GONE, set()
        elif text.get(target, GONE) == GONE:
            continue
        elif entry.kind == "edit":
            text[target] = entry.content
        elif entry.on is True:
            reactions[target].add((entry.sender_id, entry.content))
        else:
            reactions[target].discard((entry.sender_id, entry.content))
    return {
        key: (
            text[key],
            reactions[key],
            {reply for reply, root in about.items() if root == key and text[reply] != GONE},
        )
        for key in text
    }


def check_list(world: World) -> None:
    """What is known of chats without opening them."""
    for person in world.people:
        mine = {chat_id for chat_id in CHAT_IDS if person.is_in(chat_id)}
        assert person.core.rows.keys() == mine, "one's own chats are listed"
        for chat_id in CHAT_IDS:
            chat, is_in = person.core.chat(chat_id), person.is_in(chat_id)
            unread = world.server.unread(chat_id, person.user_id) if is_in else 0
            assert chat.unread_count == unread, "unread is what the log says"
            is_muted = is_in and world.server.is_muted(chat_id, person.user_id)
            assert chat.is_muted(WALL_MS) == is_muted
            assert not chat.typing, "nobody types for ever"


def steps(hurtful: list[str]) -> st.SearchStrategy[list[tuple[str, int, str]]]:
    what = st.one_of(st.sampled_from(ORDINARY), st.sampled_from(hurtful))
    who = st.integers(0, len(DEVICES) - 1)
    return st.lists(st.tuples(what, who, st.sampled_from(CHAT_IDS)), min_size=20, max_size=120)


@settings(max_examples=100, deadline=None)
@given(steps(HURTFUL), st.integers(0, 2**32))
@pytest.mark.timeout(SHRINK_SECONDS_MAX)
def test_promises_hold_whatever_the_network_does(life: list[tuple[str, int, str]], seed: int) -> None:
    """Whatever is lost, repeated, swapped, cut, refused or crashed, order and exactly-once storage hold."""
    world = World(seed=seed)
    for what, who, chat_id in life:
        happen(world, world.people[who], chat_id, what)
    world.settle()
    check_promises(world)
    check_members(world)
    for person in world.people:
        for chat_id, log in world.server.logs.items():
            acknowledged = world.server.cursor(person.device, chat_id)
            assert acknowledged == len(log) or not person.is_in(chat_id), "the server knows where it is"


@settings(max_examples=70, deadline=None)
@given(steps([*HURTFUL, *STARTING_OVER]), st.integers(0, 2**32))
@pytest.mark.timeout(SHRINK_SECONDS_MAX)
def test_readers_follow_a_log_that_is_started_over(life: list[tuple[str, int, str]], seed: int) -> None:
    """Whoever forgets a chat when its epoch changes ends with exactly the log that is there."""
    world = World(seed=seed)
    for what, who, chat_id in life:
        happen(world, world.people[who], chat_id, what)
    world.settle()
    check_readers(world)


def check_members(world: World) -> None:
    for person in world.people:
        for chat_id in CHAT_IDS:
            chat = person.core.chat(chat_id)
            assert chat.is_open == person.is_in(chat_id), "what is open stays so"
            if not chat.is_open:
                continue
            truth = world.server.snapshot(chat_id, PEOPLE[:2])
            joined = {member.user_id: member.joined_sequence for member in chat.members}
            assert joined == {member.user_id: member.joined_sequence for member in truth.members}
            assert truth.marks is not None
            for mark, info in zip(truth.marks.marks, truth.members, strict=True):
                member = chat.members.get(mark.user_id)
                assert member is not None
                shown = (member.delivered_up_to, member.read_up_to)
                assert shown == (mark.delivered_up_to, mark.read_up_to), "members are where they are"
                assert member.username, "and have names"
                assert member.status == info.status or member.user_id == person.user_id, "they are there"


@settings(max_examples=120, deadline=None)
@given(steps(ON_A_GOOD_LINE), st.integers(0, 2**32))
@pytest.mark.timeout(SHRINK_SECONDS_MAX)
def test_models_follow_without_being_asked_for_again(life: list[tuple[str, int, str]], seed: int) -> None:
    """Sends, reads on any device, joins, pages and reconnects in any order leave what the server has."""
    world = World(seed=seed)
    for what, who, chat_id in life:
        happen(world, world.people[who], chat_id, what)
    world.settle(cut=False)
    check_readers(world)
    check_members(world)
