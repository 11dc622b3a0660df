"""Who types, and telling it, in virtual time."""

from parley.client.events import Update, What
from parley.wire.frames import ChatChanged, Messages, Request, Typing, TypingStart, TypingStop
from tests.model_server.server import make_entry, raw
from tests.unit.client.harness import CHAT, Harness, outgoing, position

ME, BEN, CAS = "user_me", "user_ben", "user_cas"
TYPING = Update(What.TYPING, CHAT)


def connected() -> Harness:
    harness = Harness()
    harness.connect()
    harness.answer_overview(position(head=1))
    harness.core.events()
    return harness


def types(harness: Harness, user_id: str, ms: int = 5_000) -> None:
    harness.receive(Typing(chat_id=CHAT, user_id=user_id, expires_in_ms=ms))


def shown(harness: Harness) -> list[str]:
    harness.core.tick(harness.now_ms)
    return list(harness.core.chat(CHAT).typing)


def told(frames: list[Request]) -> list[Request]:
    return [frame for frame in frames if isinstance(frame, TypingStart | TypingStop)]


def test_somebody_is_shown_until_their_time_is_over() -> None:
    """Beginning and end are both told, and each renewal starts the time anew."""
    harness = connected()
    types(harness, BEN)
    assert shown(harness) == [BEN]
    assert harness.core.events() == [TYPING]
    harness.pass_time(3_000)
    types(harness, BEN)
    assert harness.core.events() == []
    harness.pass_time(4_999)
    assert shown(harness) == [BEN]
    harness.pass_time(1)
    assert shown(harness) == []
    assert harness.core.events() == [TYPING]


def test_nobody_is_shown_longer_than_five_seconds() -> None:
    """Whatever a server says."""
    harness = connected()
    types(harness, BEN, ms=60_000)
    harness.pass_time(5_000)
    assert shown(harness) == []


def test_several_are_shown_in_the_order_in_which_they_began() -> None:
    """Each has a time of their own."""
    harness = connected()
    types(harness, CAS)
    harness.pass_time(1_000)
    types(harness, BEN)
    types(harness, CAS)
    assert shown(harness) == [CAS, BEN]


def test_a_stop_and_a_message_end_it() -> None:
    """Nobody types what they have said."""
    harness = connected()
    types(harness, BEN)
    types(harness, BEN, ms=0)
    assert shown(harness) == []
    types(harness, BEN)
    types(harness, CAS)
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, 2, sender=BEN))]))
    assert shown(harness) == [CAS]


def test_a_lost_connection_and_leaving_the_chat_end_it() -> None:
    """Nobody would tell that they stopped."""
    harness = connected()
    types(harness, BEN)
    harness.core.disconnected()
    assert shown(harness) == []
    harness.connect()
    types(harness, BEN)
    harness.receive(ChatChanged(chat_id=CHAT, change="left", user_id=ME))
    assert shown(harness) == []


def test_oneself_is_not_shown() -> None:
    """What another device of one's own types is no news."""
    harness = connected()
    types(harness, ME)
    assert shown(harness) == []


def test_typing_is_told_once_in_three_seconds() -> None:
    """However often a key is pressed."""
    harness = connected()
    sent = 0
    for _ in range(61):
        harness.core.start_typing(harness.core.chat(CHAT), harness.now_ms)
        sent += len(told(harness.pass_time(100)))
    assert sent == 3


def test_a_stop_is_told_only_after_a_start() -> None:
    """And not after the message that tells it."""
    harness = connected()
    harness.core.stop_typing(harness.core.chat(CHAT))
    assert told(harness.frames()) == []
    harness.core.start_typing(harness.core.chat(CHAT), 0)
    harness.core.stop_typing(harness.core.chat(CHAT))
    harness.core.stop_typing(harness.core.chat(CHAT))
    assert told(harness.frames()) == [TypingStart(chat_id=CHAT), TypingStop(chat_id=CHAT)]
    harness.pass_time(3_000)
    harness.core.start_typing(harness.core.chat(CHAT), harness.now_ms)
    harness.core.send(outgoing("a"))
    harness.core.stop_typing(harness.core.chat(CHAT))
    assert told(harness.frames()) == [TypingStart(chat_id=CHAT)]


def test_typing_is_not_told_later() -> None:
    """What was typed without a connection is nobody's business when there is one."""
    harness = Harness()
    harness.core.start_typing(harness.core.chat(CHAT), 0)
    harness.connect()
    assert told(harness.frames()) == []
    harness.core.start_typing(harness.core.chat(CHAT), 0)
    harness.core.disconnected()
    harness.connect()
    assert told(harness.frames()) == []
