"""The pure core against a model server and a network that hurts: many short lives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.core.message_life import MessageState, replay
from parley.errors import OUTCOME_UNKNOWN, RATE_LIMITED, STORE_UNAVAILABLE
from parley.wire.frames import Entry
from tests.seeds import SHRINK_SECONDS_MAX
from tests.unit.client.model_server import FORBIDDEN_CONTENT
from tests.unit.client.world import CHAT_IDS, DEVICES, GUEST, PEOPLE, WALL_MS, Person, World

ORDINARY = [
    "send",
    "send",
    "send three",
    "flow",
    "flow",
    "up",
    "up",
    "up",
    "down",
    "down",
    "down",
    "take",
    "take all",
    "read",
    "read elsewhere",
    "snapshot",
    "type",
    "mute",
    "appear or vanish",
    "take all",
    "reply",
    *["react"] * 3,
    *["edit"] * 3,
    *["delete"] * 2,
]
"""What a good day is made of; after each, the shell takes its turn."""
HURTFUL = [
    "send forbidden",
    "cut",
    "away or back",
    "crash",
    "lose up",
    "lose down",
    "repeat up",
    "repeat down",
    "swap down",
    "slow disk",
    "time",
    "void",
    "refuse",
    "refuse anything",
    "unheard",
    "come or go",
    "leave or join",
    "rest",
    "reopen",
    "unknown, stored",
    "unknown, not stored",
]


ON_A_GOOD_LINE = [
    "void",
    "cut",
    "away or back",
    "away or back",
    "crash",
    "time",
    "rest",
    "rest",
    "read",
    "read elsewhere",
    "come or go",
    "come or go",
    "leave or join",
    "leave or join",
    "unheard",
    "refuse anything",
    "reopen",
    "snapshot",
    "flow",
]
"""What may happen without anything being lost."""


def happen(world: World, person: Person, chat_id: str, what: str) -> None:
    match what:
        case "send":
            person.send(chat_id, f"{person.user_id} {chat_id}")
        case "send three":
            for number in range(3):
                person.send(chat_id, f"{person.user_id} {chat_id} {number}")
        case "flow":
            while world.up(person) or world.down(person):
                pass
        case "up":
            world.up(person)
        case "down":
            world.down(person)
        case "take":
            person.take(chat_id)
        case "take all":
            while person.take(chat_id):
                pass
        case "read":
            person.read(chat_id)
        case "read elsewhere":
            world.read_elsewhere(person, chat_id)
        case "snapshot":
            world.snapshot(person)
        case "type":
            person.core.start_typing(person.core.chat(chat_id), world.now_ms)
        case "mute":
            world.mute(chat_id, person.user_id)
        case "appear or vanish":
            world.appear_or_vanish()
        case "reopen":
            person.reopen(chat_id)
        case "reply" | "react" | "edit" | "delete":
            person.amend(chat_id, what)
        case "rest":
            world.settle(cut=False)
        case _:
            hurt(world, person, chat_id, what)
    for member in world.people:
        member.turn(disk_works=what != "slow disk")


def hurt(world: World, person: Person, chat_id: str, what: str) -> None:
    match what:
        case "send forbidden":
            person.send(chat_id, FORBIDDEN_CONTENT)
        case "cut":
            person.cut()
        case "away or back":
            person.go_away_or_come_back()
        case "crash":
            person.crash()
        case "time":
            world.pass_time(5_000)
        case "start over":
            world.server.start_over(chat_id)
        case "void":
            world.broadcast(world.server.add_void(chat_id))
        case "come or go":
            world.come_or_go(chat_id, GUEST)
        case "leave or join":
            world.come_or_go(chat_id, person.user_id)
        case "unheard":
            world.server.add_unheard(chat_id, GUEST)
        case "refuse anything":
            world.server.refuse_any += [RATE_LIMITED, STORE_UNAVAILABLE]
        case "repeat up" if person.up:
            person.up.append(person.up[0])
        case "lose up" if person.up:
            person.up.popleft()
        case "lose down" if person.down:
            person.down.popleft()
        case "repeat down" if person.down:
            person.down.append(person.down[0])
        case "swap down":
            person.down.rotate(1)
        case "refuse":
            world.server.refuse_next += [RATE_LIMITED, STORE_UNAVAILABLE]
        case "unknown, stored" | "unknown, not stored":
            world.server.store_when_unknown = what == "unknown, stored"
            world.server.refuse_next.append(OUTCOME_UNKNOWN)


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
@given(steps([*HURTFUL, "start over", "start over"]), st.integers(0, 2**32))
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
