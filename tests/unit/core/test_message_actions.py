"""What may be done to a message, and what a device shows of it."""

from itertools import product

from msgspec import UNSET
from msgspec.structs import replace

from parley.core.append import answer_again
from parley.core.log_hash import body_digest
from parley.core.message_actions import decide_amendment, edited, replay, tombstone
from parley.model import Draft, Kind, Role, Target
from parley.wire.frames import Entry

ME, OTHER = "user_me", "user_other"
ENTRY = Entry(
    chat_id="chat_1",
    sequence=1,
    epoch=1,
    kind="message",
    message_id="msg_1",
    sender_id=ME,
    client_message_id="c",
    content="one",
    content_type="text/plain",
    created_at="2026-01-01T00:00:00.000Z",
    server_timestamp="2026-01-01T00:00:00.000Z",
)


def entry(sequence: int, kind: str, content: str = "", **fields: object) -> Entry:
    return replace(
        ENTRY, sequence=sequence, message_id=f"msg_{sequence}", kind=kind, content=content, **fields
    )


def expected(kind: Kind, is_own: bool, role: Role, target: Target, on: bool) -> str | None:
    """The order of the refusals, written down once more."""
    may_delete = is_own or (target.is_group and role is not Role.MEMBER)
    refusals = [
        ("forbidden", (kind is Kind.EDIT and not is_own) or (kind is Kind.DELETE and not may_delete)),
        ("message_deleted", target.is_deleted),
        ("under_hold", target.is_held and kind is not Kind.REACTION),
        ("edit_window_over", target.is_too_old and kind is Kind.EDIT),
        ("too_many_reactions", not target.has_room and kind is Kind.REACTION and on),
    ]
    return next((code for code, holds in refusals if holds), None)


def test_every_combination_of_facts_is_decided() -> None:
    """Each combination of facts is refused for the first reason that holds, or accepted."""
    kinds = (Kind.EDIT, Kind.DELETE, Kind.REACTION)
    flags = [(False, True)] * 7
    for kind, role, facts in product(kinds, Role, product(*flags)):
        is_own, is_group, is_deleted, is_held, is_too_old, has_room, on = facts
        target = Target(
            sequence=1,
            sender_id=ME if is_own else OTHER,
            is_group=is_group,
            is_deleted=is_deleted,
            is_held=is_held,
            is_too_old=is_too_old,
            has_room=has_room,
        )
        draft = Draft(chat_id="chat_1", sender_id=ME, content="x", kind=kind.value, target=target, on=on)
        refusal = decide_amendment(draft, role)
        assert (refusal.code if refusal else None) == expected(kind, is_own, role, target, on)


def test_what_is_about_no_message_is_refused() -> None:
    """A draft that names no message of the chat is refused as not found."""
    for kind in (Kind.MESSAGE, Kind.EDIT, Kind.DELETE, Kind.REACTION):
        draft = Draft(chat_id="chat_1", sender_id=ME, content="x", kind=kind.value)
        refusal = decide_amendment(draft, Role.OWNER)
        assert refusal is not None
        assert refusal.code == "not_found"


def test_an_older_edit_and_one_of_a_deleted_message_change_nothing() -> None:
    """Only a newer edit of a message that is still there replaces its content."""
    newer = edited(ENTRY, entry(5, "edit", "five"))
    assert newer is not None
    assert (newer.content, newer.body_digest, newer.edit_sequence) == ("five", body_digest(ENTRY), 5)
    assert edited(newer, entry(4, "edit", "four")) is None
    gone = tombstone(newer)
    assert gone is not None
    assert (gone.content, gone.body_digest) == ("", body_digest(ENTRY))
    assert edited(gone, entry(6, "edit", "six")) is None
    assert tombstone(gone) is None
    assert tombstone(entry(7, "delete")) is None


def test_a_late_retry_of_an_edited_message_is_no_conflict() -> None:
    """It says what it said; another content is still one."""
    draft = Draft(chat_id="chat_1", sender_id=ME, content="one")
    for stored in (edited(ENTRY, entry(5, "edit", "five")), tombstone(ENTRY)):
        assert stored is not None
        assert not answer_again(draft, stored).conflict
        assert answer_again(replace(draft, content="five"), stored).conflict
    assert answer_again(replace(draft, kind="edit", target_id="msg_2"), ENTRY).conflict


def test_a_device_shows_what_the_entries_say_in_order() -> None:
    """Also one that got a message in its newest form before it got the edits."""
    log = [
        ENTRY,
        entry(2, "message", "reply", reply_to="msg_1"),
        entry(3, "edit", "two", target_id="msg_1"),
        entry(4, "reaction", "x", target_id="msg_1", reaction="x", on=True),
        entry(5, "edit", "three", target_id="msg_1"),
        entry(6, "delete", target_id="msg_2"),
    ]
    newest = edited(ENTRY, log[4])
    assert newest is not None
    for shown in (replay(log), replay([newest, *log[1:]])):
        assert shown["msg_1"].entry.content == "three"
        assert [(one.reaction, one.count) for one in shown["msg_1"].reactions] == [("x", 1)]
        assert shown["msg_1"].replies == set()
        assert shown["msg_2"].entry.deleted is True
    halfway = replay([newest, *log[1:3]])
    assert halfway["msg_1"].entry.content == "three", "it does not fall back to an older edit"
    assert ENTRY.edited_at is UNSET
