"""Chats and their members: created here, changed by entries of their own log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parley import ids
from parley.bus.ports import Bus
from parley.clock import Clock, iso
from parley.core.shown_text import shown_text
from parley.errors import BAD_REQUEST, NOT_A_MEMBER, NOT_FOUND, Refused
from parley.model import (
    Action,
    Appended,
    Change,
    ChatMember,
    ChatType,
    Draft,
    Head,
    Kind,
    ReadReceipts,
    Role,
    StoredChat,
)
from parley.sending.sender import Sender
from parley.store.ports import Directory
from parley.wire.limits import CHAT_MEMBERS_MAX, SLOW_MODE_SECONDS_MAX, TITLE_CHARS_MAX

FIRST_EPOCH = 1
OPERATOR = "operator"
"""In the content of an entry that an operator made in a member's name."""
NO_TITLE = BAD_REQUEST.because(f"a title has 1 to {TITLE_CHARS_MAX} characters")
ABOUT_THE_CHAT = (Action.RENAMED, Action.READ_RECEIPTS, Action.POSTING)
BAD_SLOW_MODE = BAD_REQUEST.because(f"slow_mode_seconds is 0 to {SLOW_MODE_SECONDS_MAX}")
TWO_PEOPLE = BAD_REQUEST.because("a direct chat is between you and exactly one other person")
DIRECT_NO_TITLE = BAD_REQUEST.because("a direct chat has no title")
TOO_MANY_MEMBERS = BAD_REQUEST.because(f"a chat has at most {CHAT_MEMBERS_MAX} members")


class Membership:
    def __init__(
        self, directory: Directory, sending: Sender, bus: Bus, clock: Clock, make_ids: ids.Ids
    ) -> None:
        self._directory = directory
        self._sending = sending
        self._bus = bus
        self._clock = clock
        self._ids = make_ids

    async def create(
        self,
        creator_id: str,
        chat_type: ChatType,
        member_ids: Sequence[str],
        title: str | None = None,
        open_to_join: bool = False,
        chat_id: str = "",
    ) -> tuple[StoredChat, bool]:
        """A chat and its first members; nothing is appended, so its first message is number 1.

        `chat_id`: of a request that may have been carried out before; then the chat is there.
        """
        others = set(member_ids) - {creator_id}
        title = None if title is None else _shown_title(title)
        _check_new(chat_type, others, title)
        found = await self._directory.chat(chat_id) if chat_id else None
        if found is not None:
            return found, False
        now_ms = self._clock()
        now = iso(now_ms)
        chat = StoredChat(
            chat_id=chat_id or self._ids.next(ids.CHAT, now_ms),
            chat_type=chat_type,
            title=title,
            created_by=creator_id,
            created_at=now,
            updated_at=now,
            epoch=FIRST_EPOCH,
            open_to_join=open_to_join and chat_type is ChatType.GROUP,
        )
        chat, created = await self._directory.create_chat(chat, sorted(others))
        if created:
            self._bus.publish_joined(chat.chat_id, Head(chat.epoch, 0), sorted({*others, creator_id}))
        return chat, created

    async def chat_for(self, chat_id: str, user_id: str) -> tuple[StoredChat, Role]:
        """A chat that this person is in; unknown and foreign ones are refused alike."""
        role = await self._directory.role(chat_id, user_id)
        chat = await self._directory.chat(chat_id) if role is not None else None
        if role is None or chat is None:
            raise Refused(NOT_A_MEMBER)
        return chat, role

    async def count(self, chat_id: str) -> int:
        return await self._directory.member_count(chat_id)

    async def members(self, chat_id: str, user_id: str, after: str, limit: int) -> list[ChatMember]:
        await self.chat_for(chat_id, user_id)
        return await self._directory.members(chat_id, after, limit)

    async def add(self, chat_id: str, actor_id: str, user_id: str, role: Role) -> Appended:
        return await self._change(chat_id, actor_id, Change(Action.JOINED, user_id, role))

    async def set_role(self, chat_id: str, actor_id: str, user_id: str, role: Role) -> Appended:
        return await self._change(chat_id, actor_id, Change(Action.ROLE, user_id, role))

    async def remove(
        self, chat_id: str, actor_id: str, user_id: str, *, by_operator: bool = False
    ) -> Appended:
        """Remove a member, or leave."""
        role = await self._directory.role(chat_id, user_id)
        if role is None and await self._directory.role(chat_id, actor_id) is not None:
            raise Refused(NOT_FOUND.because("this person is not a member"))
        action = Action.LEFT if user_id == actor_id and not by_operator else Action.REMOVED
        change = Change(action, user_id, role or Role.MEMBER)
        return await self._change(chat_id, actor_id, change, by_operator=by_operator)

    async def rename(self, chat_id: str, actor_id: str, title: str, *, by_operator: bool = False) -> Appended:
        change = Change(Action.RENAMED, title=_shown_title(title))
        return await self._change(chat_id, actor_id, change, by_operator=by_operator)

    async def set_read_receipts(self, chat_id: str, actor_id: str, mode: ReadReceipts) -> Appended:
        """What the chat tells of who has read, from this entry on and for every message."""
        return await self._change(chat_id, actor_id, Change(Action.READ_RECEIPTS, read_receipts=mode))

    async def set_posting(
        self, chat_id: str, actor_id: str, announcement_only: bool | None, slow_mode_seconds: int | None
    ) -> Appended:
        """Who may post from this entry on, and how often; None leaves it as it is."""
        if slow_mode_seconds is not None and not 0 <= slow_mode_seconds <= SLOW_MODE_SECONDS_MAX:
            raise Refused(BAD_SLOW_MODE)
        change = Change(
            Action.POSTING, announcement_only=announcement_only, slow_mode_seconds=slow_mode_seconds
        )
        return await self._change(chat_id, actor_id, change)

    async def _change(
        self, chat_id: str, actor_id: str, change: Change, *, by_operator: bool = False
    ) -> Appended:
        return await self._sending.send(
            Draft(
                chat_id=chat_id,
                sender_id=actor_id,
                content=_content(change, by_operator=by_operator),
                content_type="application/json",
                kind=Kind.CHAT.value if change.action in ABOUT_THE_CHAT else Kind.MEMBER.value,
                change=change,
                by_operator=by_operator,
            )
        )


def _content(change: Change, *, by_operator: bool) -> str:
    body: dict[str, object] = {"action": change.action.value}
    if change.action is Action.RENAMED:
        body["title"] = change.title
    elif change.action is Action.READ_RECEIPTS and change.read_receipts is not None:
        body["read_receipts"] = change.read_receipts.value
    elif change.action is Action.POSTING:
        wanted = {
            "announcement_only": change.announcement_only,
            "slow_mode_seconds": change.slow_mode_seconds,
        }
        body |= {name: value for name, value in wanted.items() if value is not None}
    else:
        body |= {"user_id": change.user_id, "role": change.role.value}
    if by_operator:
        body["by"] = OPERATOR
    return msgspec.json.encode(body).decode()


def _shown_title(title: str) -> str:
    """As others see it."""
    shown = shown_text(title)
    if not 1 <= len(shown) <= TITLE_CHARS_MAX:
        raise Refused(NO_TITLE)
    return shown


def _check_new(chat_type: ChatType, others: set[str], title: str | None) -> None:
    if chat_type is ChatType.DIRECT:
        if len(others) != 1:
            raise Refused(TWO_PEOPLE)
        if title is not None:
            raise Refused(DIRECT_NO_TITLE)
    if len(others) >= CHAT_MEMBERS_MAX:
        raise Refused(TOO_MANY_MEMBERS)
