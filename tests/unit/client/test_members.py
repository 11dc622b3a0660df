"""An open chat: members, positions and presence, loaded and then kept up to date."""

import json

import msgspec
import pytest

from parley.client.events import ChatOpened, LoadChat, Update, What
from parley.client.members import ChatSnapshot, Member
from parley.client.storage import Cursor
from parley.errors import NOT_A_MEMBER, STORE_UNAVAILABLE
from parley.model import ChatType, MemberCursor, ReadReceipts, Role
from parley.wire.bodies import ChatInfo, ChatMarks, MemberInfo
from parley.wire.frames import (
    ChatChanged,
    HeartbeatAck,
    Messages,
    PresenceChanged,
    PresenceState,
    PresenceSubscribe,
    PresenceView,
    answer_to,
)
from tests.model_server.server import TIME, make_entry, raw, receipt
from tests.unit.client.harness import CHAT, Harness, of, position

ME, BEN, CAS, DAN = "user_me", "user_ben", "user_cas", "user_dan"


def snapshot(
    *people: tuple[str, int, int], mode: ReadReceipts = ReadReceipts.FULL, read_by_anybody: int = 0
) -> ChatSnapshot:
    """A chat of these people: who, and how far each has received and read."""
    info = ChatInfo(
        chat_id=CHAT,
        type=ChatType.GROUP,
        title="Tea",
        created_by=ME,
        created_at=TIME,
        updated_at=TIME,
        epoch=1,
        head=10,
        role=Role.OWNER,
        member_count=len(people),
        open_to_join=False,
        read_receipts=mode,
        muted=False,
        muted_until=None,
    )
    members = [
        MemberInfo(user_id, Role.MEMBER, TIME, 0, user_id.removeprefix("user_"), "", "offline", None)
        for user_id, _, _ in people
    ]
    marks = [MemberCursor(user_id, 0, received, TIME, read, TIME) for user_id, received, read in people]
    return ChatSnapshot(info, members, ChatMarks(mode, marks, read_by_anybody))


def opening() -> Harness:
    """A chat of whose snapshot is asked."""
    harness = Harness()
    harness.connect()
    harness.answer_overview(position(head=10))
    harness.core.events()
    harness.core.open(harness.core.chat(CHAT))
    harness.frames()
    assert harness.core.events() == [LoadChat(CHAT)]
    return harness


def opened(*people: tuple[str, int, int]) -> Harness:
    harness = opening()
    harness.core.chat_loaded(
        harness.core.chat(CHAT), snapshot(*(people or ((ME, 10, 10), (BEN, 6, 5), (CAS, 8, 3))))
    )
    harness.core.events()
    return harness


def changed(harness: Harness, sequence: int, action: str, **fields: str) -> None:
    kind = "chat" if action in ("renamed", "read_receipts") else "member"
    entry = make_entry(CHAT, sequence, json.dumps({"action": action, **fields}), sender=ME)
    entry = msgspec.structs.replace(entry, kind=kind)
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(entry)]))


def member(harness: Harness, user_id: str) -> Member:
    found = harness.core.chat(CHAT).members.get(user_id)
    assert found is not None
    return found


def status(harness: Harness, sequence: int) -> tuple[str, int, int]:
    """The status of a message of one's own, how many have read it, and of how many."""
    receipts = harness.core.chat(CHAT).receipts(sequence, ME)
    assert receipts is not None
    return receipts.status.value, len(receipts.read), receipts.member_count


def test_a_chat_is_open_once_it_was_loaded() -> None:
    """Nothing is shown before, and opening it again needs no new snapshot."""
    harness = opening()
    assert not harness.core.chat(CHAT).is_open
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 0, 0), (BEN, 0, 0)))
    assert ChatOpened(CHAT) in harness.core.events()
    assert member(harness, BEN).username == "ben"
    harness.core.open(harness.core.chat(CHAT))
    harness.frames()
    assert harness.core.events() == [ChatOpened(CHAT)]


def test_the_status_of_every_message_follows_from_how_far_people_are() -> None:
    """Delivered and read are told once everybody is there."""
    harness = opened()
    assert [status(harness, number) for number in (3, 5, 6, 9)] == [
        ("read", 2, 2),
        ("delivered", 1, 2),
        ("delivered", 0, 2),
        ("sent", 0, 2),
    ]


def test_receipts_raise_positions_and_never_lower_them() -> None:
    """What is read is delivered, too."""
    harness = opened()
    harness.receive(receipt(CHAT, BEN, "read", 9))
    harness.receive(receipt(CHAT, CAS, "delivered", 9))
    harness.receive(receipt(CHAT, CAS, "read", 2))
    harness.receive(receipt(CHAT, "user_stranger", "read", 9))
    assert (member(harness, BEN).delivered_up_to, member(harness, BEN).read_up_to) == (9, 9)
    assert (member(harness, CAS).delivered_up_to, member(harness, CAS).read_up_to) == (9, 3)
    assert status(harness, 9) == ("delivered", 1, 2)
    assert harness.core.events() == [Update(What.RECEIPTS, CHAT)]


def test_what_is_heard_while_a_chat_is_loaded_is_not_lost() -> None:
    """The snapshot may be older than that, and names somebody who is there no more."""
    harness = opening()
    harness.receive(receipt(CHAT, BEN, "read", 9))
    changed(harness, 11, "removed", user_id=CAS, role="member")
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 10, 10), (BEN, 6, 5), (CAS, 8, 3)))
    assert status(harness, 9) == ("read", 1, 1)


def test_a_picture_that_knows_more_than_what_is_heard_stays() -> None:
    """Somebody who came back is not taken out by the older news that they left."""
    harness = opening()
    came_back = snapshot((ME, 10, 10), (BEN, 6, 5))
    came_back.members[1].joined_sequence = 12
    harness.core.chat_loaded(harness.core.chat(CHAT), came_back)
    changed(harness, 11, "left", user_id=BEN, role="member")
    assert member(harness, BEN).joined_sequence == 12


def test_members_come_go_and_change() -> None:
    """A new member is there at once, with a name from the next snapshot on; old messages are not for them."""
    harness = opened()
    changed(harness, 11, "joined", user_id=DAN, role="admin")
    assert (member(harness, DAN).role, member(harness, DAN).username) == (Role.ADMIN, "")
    assert status(harness, 3) == ("read", 2, 2)
    assert status(harness, 12) == ("sent", 0, 3)
    changed(harness, 12, "role", user_id=DAN, role="member")
    changed(harness, 13, "left", user_id=BEN, role="member")
    assert member(harness, DAN).role is Role.MEMBER
    assert status(harness, 3) == ("read", 1, 1)
    harness.frames()
    events = harness.core.events()
    assert LoadChat(CHAT) in events
    assert Update(What.MEMBERS, CHAT) in events


def test_a_chat_that_becomes_small_enough_for_receipts_is_looked_at() -> None:
    """With more members nobody was told how far they are, so nobody knew."""
    harness = opening()
    crowd = snapshot((ME, 0, 0), *((f"user_{number}", 0, 0) for number in range(100)))
    crowd.marks = None
    harness.core.chat_loaded(harness.core.chat(CHAT), crowd)
    harness.core.events()
    changed(harness, 11, "left", user_id="user_7", role="member")
    harness.frames()
    assert LoadChat(CHAT) in harness.core.events()
    changed(harness, 12, "left", user_id="user_8", role="member")
    harness.frames()
    assert LoadChat(CHAT) not in harness.core.events()


def test_a_chat_that_does_not_say_who_has_read() -> None:
    """In `simple` one reader is enough; in `none` nobody is told at all."""
    harness = opening()
    marks = ((ME, 10, 0), (BEN, 9, 0), (CAS, 8, 0))
    harness.core.chat_loaded(
        harness.core.chat(CHAT), snapshot(*marks, mode=ReadReceipts.SIMPLE, read_by_anybody=7)
    )
    assert [status(harness, number) for number in (7, 8, 9)] == [
        ("read", 1, 2),
        ("delivered", 0, 2),
        ("sent", 0, 2),
    ]
    harness.receive(receipt(CHAT, None, "read", 9))
    assert status(harness, 9) == ("read", 1, 2)
    harness.frames()
    harness.core.events()
    changed(harness, 11, "read_receipts", read_receipts="none")
    assert status(harness, 8) == ("delivered", 0, 2)
    harness.frames()
    assert LoadChat(CHAT) in harness.core.events()


def test_an_unknown_change_is_passed_over() -> None:
    """A newer server may change more than this version knows."""
    harness = opened()
    changed(harness, 11, "painted", user_id=BEN)
    changed(harness, 12, "renamed", title="Coffee")
    found = harness.core.chat(CHAT).roster
    assert found is not None
    assert (found.title, len(found.by_id)) == ("Coffee", 3)


def test_after_a_reconnect_the_chat_is_looked_at_again() -> None:
    """What it was stays shown until then."""
    harness = opened()
    harness.core.disconnected()
    harness.frames()
    assert LoadChat(CHAT) not in harness.core.events()
    harness.connect()
    harness.frames()
    assert LoadChat(CHAT) in harness.core.events()
    assert status(harness, 3) == ("read", 2, 2)
    ben = member(harness, BEN)
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 10, 10), (BEN, 9, 9)))
    assert status(harness, 9) == ("read", 1, 1)
    assert ben.read_up_to == 9


def test_a_connection_lost_while_loading_leads_to_another_picture() -> None:
    """The first may have been taken before what was missed."""
    harness = opening()
    harness.core.disconnected()
    harness.connect()
    harness.frames()
    assert LoadChat(CHAT) not in harness.core.events()
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 0, 0)))
    harness.frames()
    assert LoadChat(CHAT) in harness.core.events()


def test_a_gap_leads_to_another_picture() -> None:
    """A change of members may have been in it."""
    harness = opened()
    harness.receive(HeartbeatAck(server_time=TIME, heads={CHAT: 14}))
    harness.frames()
    assert LoadChat(CHAT) in harness.core.events()


def test_a_picture_that_cannot_be_had_is_asked_for_later() -> None:
    """A refusal for now, or no answer, is no end."""
    harness = opening()
    harness.core.load_failed(harness.core.chat(CHAT), None, harness.now_ms)
    harness.frames()
    assert harness.core.events() == []
    harness.pass_time(1_000)
    assert harness.core.events() == [LoadChat(CHAT)]
    harness.core.load_failed(harness.core.chat(CHAT), STORE_UNAVAILABLE, harness.now_ms)
    harness.pass_time(1_999)
    assert harness.core.events() == []
    harness.pass_time(1)
    assert harness.core.events() == [LoadChat(CHAT)]


def test_a_chat_that_is_not_ones_own_does_not_open() -> None:
    """Whoever waits for it is told why, also when it was closed or left meanwhile."""
    harness = opening()
    harness.core.load_failed(harness.core.chat(CHAT), NOT_A_MEMBER, 0)
    assert ChatOpened(CHAT, NOT_A_MEMBER) in harness.core.events()
    harness.core.open(harness.core.chat(CHAT))
    harness.receive(ChatChanged(chat_id=CHAT, change="left", user_id=ME))
    assert ChatOpened(CHAT, NOT_A_MEMBER) in harness.core.events()
    harness.core.open(harness.core.chat(CHAT))
    harness.core.close(harness.core.chat(CHAT))
    (closed,) = [event for event in harness.core.events() if isinstance(event, ChatOpened)]
    assert closed.refusal is not None
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 0, 0)))
    assert not harness.core.chat(CHAT).is_open


def test_what_one_receives_oneself_is_known() -> None:
    """The server tells only the others: the status of their messages depends on it."""
    harness = opened((ME, 0, 0), (BEN, 6, 5))
    harness.core.cursors.move(CHAT, Cursor(1, 4), 0)
    harness.pass_time(100)
    receipts = harness.core.chat(CHAT).receipts(4, BEN)
    assert receipts is not None
    assert receipts.status.value == "delivered"


def test_what_one_received_before_a_picture_came_is_known() -> None:
    """The server may have made it before it had written that down."""
    harness = opening()
    harness.core.close(harness.core.chat(CHAT))
    harness.core.cursors.move(CHAT, Cursor(1, 4), 0)
    harness.pass_time(100)
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 0, 0)))
    harness.core.open(harness.core.chat(CHAT))
    harness.frames()
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 0, 0), (BEN, 6, 5)))
    assert member(harness, ME).delivered_up_to == 4


# Presence of its members


def subscription(harness: Harness) -> PresenceSubscribe:
    (frame,) = of(PresenceSubscribe, harness.frames())
    assert isinstance(frame, PresenceSubscribe)
    return frame


def test_the_members_of_open_chats_are_watched() -> None:
    """Their presence comes with the subscription and then as it changes, until the chat is closed."""
    harness = opened()
    asked = subscription(harness)
    assert asked.user_ids == [BEN, CAS]
    harness.receive(PresenceState(re=answer_to(asked.id), presences=[PresenceView(BEN, "online", TIME)]))
    assert member(harness, BEN).status == "online"
    assert Update(What.PRESENCE, user_id=BEN) in harness.core.events()
    harness.receive(PresenceChanged(user_id=BEN, status="offline", last_seen=TIME))
    assert (member(harness, BEN).status, member(harness, BEN).last_seen) == ("offline", TIME)
    harness.core.close(harness.core.chat(CHAT))
    assert subscription(harness).user_ids == []


def test_a_new_connection_watches_them_again() -> None:
    """A subscription is the connection's; until it is answered the last presence is shown."""
    harness = opened()
    asked = subscription(harness)
    harness.receive(PresenceState(re=answer_to(asked.id), presences=[PresenceView(BEN, "online", TIME)]))
    harness.core.disconnected()
    harness.connect()
    assert subscription(harness).user_ids == [BEN, CAS]
    assert member(harness, BEN).status == "online"


def test_a_new_picture_does_not_hide_what_is_watched() -> None:
    """The subscription is newer than any snapshot."""
    harness = opened()
    asked = subscription(harness)
    harness.receive(PresenceState(re=answer_to(asked.id), presences=[PresenceView(BEN, "online", TIME)]))
    harness.receive(HeartbeatAck(server_time=TIME, heads={CHAT: 14}))
    harness.frames()
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 10, 10), (BEN, 6, 5)))
    assert member(harness, BEN).status == "online"


@pytest.mark.parametrize(("others", "watched"), [(100, 100), (101, 0)])
def test_large_chats_are_not_watched(others: int, watched: int) -> None:
    """Nobody looks at the presence of a crowd."""
    harness = opened((ME, 0, 0), *((f"user_{number}", 0, 0) for number in range(others)))
    asked = of(PresenceSubscribe, harness.frames())
    assert sum(len(frame.user_ids) for frame in asked if isinstance(frame, PresenceSubscribe)) == watched


def test_a_bot_is_in_no_receipt() -> None:
    """It is a member like others, and no message waits for it."""
    harness = opening()
    loaded = snapshot((ME, 10, 10), (BEN, 10, 10), (CAS, 0, 0))
    loaded.members[2].is_bot = True
    harness.core.chat_loaded(harness.core.chat(CHAT), loaded)
    assert member(harness, CAS).is_bot
    found = harness.core.chat(CHAT).receipts(9, ME)
    assert found is not None
    assert (found.member_count, found.status) == (1, "read")
