"""What is unread, counted along: by positions, and asked for only where they are not known."""

import msgspec
import pytest

from parley.client.core import ClientCore
from parley.client.events import Update, What
from parley.wire.frames import (
    ChatChanged,
    Heartbeat,
    HeartbeatAck,
    Messages,
    Overview,
    OverviewChat,
    SyncOverview,
    SyncRequest,
    answer_to,
)
from tests.model_server.server import TIME, make_entry, raw, receipt
from tests.unit.client.harness import CHAT, Harness, of, position

ME, BEN = "user_me", "user_ben"


def row(head: int, read: int, unread: int, *, more: bool = False, epoch: int = 1) -> OverviewChat:
    placed = position(head=head)
    return msgspec.structs.replace(placed, epoch=epoch, read_up_to=read, unread=unread, unread_more=more)


def placed(head: int = 10, read: int = 4, unread: int = 3, *, more: bool = False) -> Harness:
    """Of the six messages after 4, three are others'; nobody here has seen which."""
    harness = Harness()
    harness.connect()
    harness.answer_overview(row(head, read, unread, more=more))
    harness.core.events()
    return harness


def live(harness: Harness, *sequences: int, sender: str = BEN, epoch: int = 1) -> None:
    entries = [make_entry(CHAT, sequence, sender=sender, epoch=epoch) for sequence in sequences]
    harness.receive(Messages(chat_id=CHAT, epoch=epoch, entries=[raw(entry) for entry in entries]))


def unread(core: ClientCore) -> tuple[int, bool]:
    return core.chat(CHAT).unread_count, core.chat(CHAT).unread_more


def asks(harness: Harness) -> bool:
    return bool(of(SyncOverview, harness.frames()))


def test_the_overview_tells_what_is_unread() -> None:
    """Its number is shown as it is, and positions alone are asked for."""
    harness = Harness()
    harness.connect()
    (asked,) = of(SyncOverview, harness.frames())
    assert isinstance(asked, SyncOverview)
    assert asked.brief
    assert unread(placed().core) == (3, False)
    assert unread(placed(unread=999, more=True).core) == (999, True)


def test_others_messages_count_and_ones_own_do_not() -> None:
    """Live entries after the overview add to it; repeated ones do not, nor do changes of the chat."""
    harness = placed()
    live(harness, 11, 12)
    live(harness, 13, sender=ME)
    live(harness, 12, 13)
    joined = msgspec.structs.replace(make_entry(CHAT, 14, "{}"), kind="member")
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(joined)]))
    assert unread(harness.core) == (5, False)
    assert Update(What.UNREAD, CHAT) in harness.core.events()
    assert not asks(harness)


@pytest.mark.parametrize(("up_to", "left"), [(12, 1), (13, 0), (99, 0), (3, 6)])
def test_reading_on_another_device_clears_at_once(up_to: int, left: int) -> None:
    """A receipt of one's own, on a position that is known, needs no question."""
    harness = placed()
    live(harness, 11, 12, 13)
    harness.receive(receipt(CHAT, ME, "read", up_to))
    assert unread(harness.core) == (left, False)
    assert not asks(harness)


def test_what_was_read_before_it_came_does_not_count() -> None:
    """The other device may be ahead of this connection."""
    harness = placed()
    harness.receive(receipt(CHAT, ME, "read", 12))
    live(harness, 11, 12, 13)
    assert unread(harness.core) == (1, False)


def test_others_receipts_and_ones_own_deliveries_say_nothing() -> None:
    """Only what oneself has read is read."""
    harness = placed()
    harness.receive(receipt(CHAT, BEN, "read", 10))
    harness.receive(receipt(CHAT, ME, "delivered", 10))
    assert unread(harness.core) == (3, False)


def test_a_read_inside_what_nobody_here_has_seen_is_asked_for() -> None:
    """Until the answer comes it is never more than before."""
    harness = placed()
    harness.receive(receipt(CHAT, ME, "read", 8))
    assert unread(harness.core) == (2, False)
    harness.answer_overview(row(10, 8, 1))
    assert unread(harness.core) == (1, False)


def test_a_read_where_the_server_did_not_look_at_everything_is_asked_for() -> None:
    """None were counted and there may be more: only the overview knows what the read leaves."""
    harness = placed(unread=0, more=True)
    harness.receive(receipt(CHAT, ME, "read", 8))
    assert unread(harness.core) == (0, True)
    harness.answer_overview(row(10, 8, 1))
    assert unread(harness.core) == (1, False)


@pytest.mark.parametrize(("count", "left"), [(0, 0), (6, 2)])
def test_a_stretch_of_one_kind_is_counted_without_asking(count: int, left: int) -> None:
    """If none or all of it are others' messages, every part of it is known."""
    harness = placed(unread=count)
    harness.receive(receipt(CHAT, ME, "read", 8))
    assert unread(harness.core) == (left, False)
    assert not asks(harness)


def test_pages_tell_which_messages_they_are() -> None:
    """Whoever reads the chat and says how far is counted without asking."""
    harness = Harness()
    harness.core.read(harness.core.chat(CHAT))
    harness.connect()
    harness.answer_overview(row(10, 0, 9))
    (request,) = of(SyncRequest, harness.frames())
    assert isinstance(request, SyncRequest)
    harness.answer_sync(request, *range(1, 9), head=10)
    assert unread(harness.core) == (9, False)
    harness.frames()
    harness.receive(receipt(CHAT, ME, "read", 5))
    assert unread(harness.core) == (4, False)
    assert not asks(harness)


def test_ones_own_read_counts_when_the_server_has_it() -> None:
    """Marking as read is known here as soon as it is known to all."""
    harness = placed()
    harness.core.mark_read(CHAT, 10)
    (barrier,) = of(Heartbeat, harness.frames())
    assert unread(harness.core) == (3, False)
    harness.receive(HeartbeatAck(re=answer_to(barrier.id), server_time=TIME))
    assert unread(harness.core) == (0, False)


def test_a_message_id_is_a_position_that_only_the_server_knows() -> None:
    """After marking one as read the overview is asked."""
    harness = placed()
    harness.core.mark_read(CHAT, "msg_9")
    (barrier,) = of(Heartbeat, harness.frames())
    harness.receive(HeartbeatAck(re=answer_to(barrier.id), server_time=TIME))
    harness.answer_overview(row(10, 9, 1))
    assert unread(harness.core) == (1, False)


def test_an_older_overview_takes_nothing_back() -> None:
    """What came, or was read, after it was made stays so."""
    harness = placed()
    harness.core.overview.ask()
    (asked,) = of(SyncOverview, harness.frames())
    live(harness, 11, 12)
    harness.receive(receipt(CHAT, ME, "read", 11))
    harness.core.overview.disconnected()
    harness.core.overview.connected()
    harness.answer_overview(row(10, 4, 3))
    assert asked.id is not None
    assert unread(harness.core) == (1, False)


def test_a_gap_is_asked_for() -> None:
    """An entry that does not follow means that something was not told, here and by a heartbeat."""
    harness = placed()
    live(harness, 13)
    harness.answer_overview(row(13, 4, 6))
    assert unread(harness.core) == (6, False)
    harness.receive(HeartbeatAck(server_time=TIME, heads={CHAT: 14}))
    harness.answer_overview(row(14, 4, 7))
    assert unread(harness.core) == (7, False)


def test_a_reconnect_needs_one_overview() -> None:
    """What comes live before it was answered is no gap."""
    harness = placed()
    harness.core.disconnected()
    harness.connect()
    live(harness, 15)
    harness.answer_overview(row(14, 4, 7))
    assert unread(harness.core) == (8, False)
    assert not asks(harness)


def test_a_log_that_was_started_over_is_counted_anew() -> None:
    """Another epoch has other positions."""
    harness = placed()
    live(harness, 1, epoch=2)
    harness.answer_overview(row(1, 0, 1, epoch=2))
    assert unread(harness.core) == (1, False)


def test_a_thousand_are_more_than_can_be_counted() -> None:
    """Then the number stands still, until a read to the end, or the overview, says otherwise."""
    harness = placed(unread=0)
    live(harness, *range(11, 1_011))
    assert unread(harness.core) == (999, True)
    harness.receive(receipt(CHAT, ME, "read", 500))
    assert asks(harness)
    harness.receive(receipt(CHAT, ME, "read", 1_009))
    assert unread(harness.core) == (1, False)


def test_as_many_as_can_be_counted_are_no_more() -> None:
    """The last number that can be shown is still exact, and one more message is more than it."""
    harness = placed(unread=0)
    live(harness, *range(11, 1_010))
    exact = unread(harness.core)
    live(harness, 1_010)
    assert (exact, unread(harness.core)) == ((999, False), (999, True))


def test_an_older_overview_does_not_hide_a_thousand() -> None:
    """Which of them it counted nobody knows any more: it is asked again."""
    harness = placed(head=0, read=0, unread=0)
    harness.core.overview.ask()
    (asked,) = of(SyncOverview, harness.frames())
    live(harness, *range(1, 1_002))
    harness.receive(Overview(re=answer_to(asked.id), chats=[row(0, 0, 0)], token="t2", complete=True))
    assert unread(harness.core) == (999, True)
    assert asks(harness)


def test_a_chat_that_was_joined_is_asked_for_and_one_that_was_left_is_empty() -> None:
    """Membership decides what is counted."""
    harness = placed()
    harness.receive(ChatChanged(chat_id="chat_new", change="joined", user_id=ME, head=3, epoch=1))
    assert asks(harness)
    harness.receive(ChatChanged(chat_id=CHAT, change="left", user_id=ME))
    assert unread(harness.core) == (0, False)
