"""Answers that were made before what was heard since: the newer word stays, or it is asked again."""

from parley.client.events import ChatOpened, LoadChat
from parley.errors import NOT_A_MEMBER
from parley.wire.frames import (
    AckPosition,
    ChatChanged,
    Messages,
    Overview,
    OverviewChat,
    SyncOverview,
    SyncRequest,
    answer_to,
    refused,
)
from tests.model_server.server import make_entry, raw, receipt
from tests.unit.client.harness import CHAT, WALL_MS, Harness, of, position, reading
from tests.unit.client.test_members import BEN, ME, opened, opening, snapshot, status

LEFT = ChatChanged(chat_id=CHAT, change="left", user_id=ME)
JOINED = ChatChanged(chat_id=CHAT, change="joined", user_id=ME, head=3)
FOREVER = "2099-01-01T00:00:00.000Z"


def asking() -> tuple[Harness, SyncOverview]:
    """Somebody whose second overview is on its way."""
    harness = Harness()
    harness.connect()
    harness.answer_overview(position(head=3, acked=3))
    harness.core.overview.ask()
    return harness, asked(harness)


def asked(harness: Harness) -> SyncOverview:
    (request,) = of(SyncOverview, harness.frames())
    assert isinstance(request, SyncOverview)
    return request


def answer(harness: Harness, request: SyncOverview, *chats: OverviewChat) -> None:
    harness.receive(Overview(re=answer_to(request.id), chats=list(chats), token="t2", complete=True))


def say(harness: Harness, sequence: int) -> None:
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, sequence))]))


def test_a_chat_that_was_left_does_not_come_back_by_an_older_overview() -> None:
    """The overview is asked once more, which tells that it was left."""
    harness, request = asking()
    harness.receive(LEFT)
    unread = position(head=3)
    unread.unread = 3
    answer(harness, request, unread)
    answer(harness, asked(harness), position(left=True))
    assert harness.core.chat(CHAT).unread_count == 0
    assert CHAT not in harness.core.rows


def test_a_chat_that_was_joined_again_does_not_go_by_an_older_overview() -> None:
    """One who was away while it was left hears of the joining before the overview that says so."""
    harness, request = asking()
    harness.receive(JOINED)
    answer(harness, request, position(left=True))
    answer(harness, asked(harness), position(head=3))
    assert CHAT in harness.core.rows


def test_a_chat_that_was_muted_stays_so() -> None:
    """An overview that was made before does not unmute it for good, and a snapshot never does."""
    harness, request = asking()
    harness.receive(ChatChanged(chat_id=CHAT, change="muted", muted_until=FOREVER))
    answer(harness, request, position(head=3))
    muted = position(head=3)
    muted.muted_until = FOREVER
    answer(harness, asked(harness), muted)
    harness.core.open(harness.core.chat(CHAT))
    harness.frames()
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 0, 0)))
    assert harness.core.chat(CHAT).is_muted(WALL_MS)


def test_what_came_before_the_first_overview_is_not_passed_over() -> None:
    """Who follows all asks the log for what was live while nobody knew where to begin."""
    harness = Harness()
    harness.core.read_all()
    harness.connect()
    request = asked(harness)
    say(harness, 4)
    answer(harness, request, position(head=3, acked=3))
    assert len(of(SyncRequest, harness.frames())) == 1


def test_what_came_while_an_overview_was_made_is_not_passed_over() -> None:
    """Who begins to follow all after it asks the log, too."""
    harness, request = asking()
    say(harness, 4)
    answer(harness, request, position(head=3, acked=3))
    harness.core.read_all()
    assert len(of(SyncRequest, harness.frames())) == 1


def test_who_follows_all_reads_a_chat_that_was_left_and_joined_again() -> None:
    """Also when nobody had yet looked at what came of the leaving."""
    harness = Harness()
    harness.core.read_all()
    harness.connect()
    harness.answer_overview(position(head=1, acked=1))
    harness.receive(LEFT)
    (page,) = of(SyncRequest, harness.frames())
    harness.receive(refused(NOT_A_MEMBER, page.id))
    harness.receive(JOINED)
    assert len(of(SyncRequest, harness.frames())) == 1


def test_the_picture_of_an_earlier_opening_is_no_picture_of_this_one() -> None:
    """It is older than what was heard since, so the chat is looked at anew and opens then."""
    harness = opening()
    harness.core.close(harness.core.chat(CHAT))
    harness.core.open(harness.core.chat(CHAT))
    harness.receive(receipt(CHAT, BEN, "read", 9))
    harness.frames()
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 10, 10), (BEN, 6, 5)))
    assert ChatOpened(CHAT) not in harness.core.events()
    harness.frames()
    assert LoadChat(CHAT) in harness.core.events()
    harness.core.chat_loaded(harness.core.chat(CHAT), snapshot((ME, 10, 10), (BEN, 9, 9)))
    assert status(harness, 9) == ("read", 1, 1)


def test_a_picture_that_is_refused_closes_the_chat_and_no_more() -> None:
    """Whether one is in it is for the overview to tell: meanwhile one may have come back."""
    harness = opened()
    say(harness, 11)
    harness.core.disconnected()
    harness.connect()
    harness.answer_overview()
    harness.core.load_failed(harness.core.chat(CHAT), NOT_A_MEMBER, harness.now_ms)
    assert not harness.core.chat(CHAT).is_open
    assert harness.core.chat(CHAT).unread_count == 1


def test_what_a_whole_list_does_not_name_is_not_ones_own() -> None:
    """A first overview tells of no chat that was left; what comes while it is made may be missing there."""
    harness = Harness()
    harness.connect()
    harness.frames()
    say(harness, 1)
    harness.core.disconnected()
    harness.connect()
    request = asked(harness)
    harness.receive(ChatChanged(chat_id="chat_new", change="joined", user_id=ME, head=1))
    answer(harness, request)
    assert harness.core.chat(CHAT).unread_count == 0
    assert list(harness.core.rows) == ["chat_new"]


def test_a_change_of_a_chat_that_was_left_does_not_list_it() -> None:
    """A mute may be told after the leaving."""
    harness, request = asking()
    answer(harness, request)
    harness.receive(LEFT)
    harness.receive(ChatChanged(chat_id=CHAT, change="muted", muted_until=FOREVER))
    assert harness.core.rows == {}
    assert not harness.core.chat(CHAT).is_muted(WALL_MS)


def test_an_ack_that_came_before_the_joining_was_heard_is_repeated() -> None:
    """The overview may name a chat sooner than the node hears of it, which refuses the ack for good."""
    harness = reading(head=1, acked=0)
    harness.core.take(harness.core.chat(CHAT), 0)
    harness.core.take(harness.core.chat(CHAT), 0)
    (ack,) = of(AckPosition, harness.pass_time(100))
    harness.receive(refused(NOT_A_MEMBER, ack.id))
    assert of(AckPosition, harness.pass_time(1_000)) == []
    harness.receive(JOINED)
    (again,) = of(AckPosition, harness.pass_time(1_000))
    assert isinstance(again, AckPosition)
    assert again.last_acked_sequence == 1


def test_a_message_of_a_chat_that_was_left_does_not_bring_it_back() -> None:
    """What no overview told of is asked for, not counted."""
    harness, request = asking()
    answer(harness, request)
    harness.receive(LEFT)
    answer(harness, asked(harness), position(left=True))
    say(harness, 4)
    assert harness.core.chat(CHAT).unread_count == 0
    assert len(of(SyncOverview, harness.frames())) == 1


def test_a_read_that_overtakes_the_first_overview_is_asked_for_again() -> None:
    """The person reads on another device before this one was told of the chat: the next overview knows it."""
    harness = Harness()
    harness.connect()
    request = asked(harness)
    harness.receive(receipt(CHAT, ME, "read", 1))
    answer(harness, request, position(head=0))
    assert of(SyncOverview, harness.frames())
