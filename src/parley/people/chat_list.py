"""The chat list of a user: titles, last entries, unread counts, the peers of direct chats, and mutes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, structs

from parley.clock import Clock, from_iso, iso
from parley.ephemeral.ports import Signals
from parley.ephemeral.signals import MuteSignal
from parley.errors import BAD_REQUEST, NOT_A_MEMBER, Refused
from parley.model import ChatMember, ChatSummary, MemberSettings, Notify, User
from parley.people.audience import Audience
from parley.people.mentions import UnreadMentions
from parley.people.presence import PresenceService
from parley.records.accounts import Accounts
from parley.store.ports import Directory, MemberStates, Overviews
from parley.wire.codec import decode_entry
from parley.wire.frames import ChatChanged, OverviewChat, Peer, PresenceView
from parley.wire.limits import OVERVIEW_CHATS_MAX, PRESENCE_BATCH_MAX

NO_TIME = BAD_REQUEST.because("muted_until is an ISO 8601 time before the year 10000, or null")


class ChatListPage(Struct, frozen=True):
    """One page, and the token for the next one, or for what has changed since."""

    chats: list[OverviewChat]
    token: str
    complete: bool


class UserView(Struct, frozen=True):
    """A user's names, and what the viewer may see of their presence."""

    user: User
    presence: PresenceView


class ChatListService:
    def __init__(
        self,
        *,
        accounts: Accounts,
        mentions: UnreadMentions,
        overviews: Overviews,
        directory: Directory,
        member_states: MemberStates,
        presence: PresenceService,
        signals: Signals,
        audience: Audience,
        clock: Clock,
    ) -> None:
        self._accounts = accounts
        self._mentions = mentions
        self._overviews = overviews
        self._directory = directory
        self._member_states = member_states
        self._presence = presence
        self._signals = signals
        self._audience = audience
        self._clock = clock
        self.close = signals.subscribe(MuteSignal, self._notify_devices)

    async def chats(
        self, user_id: str, device_id: str, changed_since: str | None, limit: int, brief: bool = False
    ) -> ChatListPage:
        """The chats that changed after a token, or all chats. `brief`: positions only."""
        limit = min(limit, OVERVIEW_CHATS_MAX)
        changed = await self._overviews.changed(user_id, device_id, changed_since, limit, brief)
        rows = [self._row(at) for at in changed.positions]
        if any(row.unread for row in rows) and await self._is_bot(user_id):
            rows = [structs.replace(row, unread=0, unread_more=False) for row in rows]
        if not brief:
            users = await self.users(user_id, [at.peer_id for at in changed.positions if at.peer_id])
            rows = [_with_names(row, at, users) for row, at in zip(rows, changed.positions, strict=True)]
            for row, mentions in zip(rows, await self._mentions.count(user_id, rows), strict=True):
                row.unread_mentions = mentions
        return ChatListPage(rows, changed.token, changed.complete)

    async def users(self, viewer_id: str, user_ids: Sequence[str]) -> dict[str, UserView]:
        """Those of these users who exist. They share a chat with the viewer."""
        found: dict[str, UserView] = {}
        for first in range(0, len(user_ids), PRESENCE_BATCH_MAX):
            some = user_ids[first : first + PRESENCE_BATCH_MAX]
            for user, presence in await self._presence.users(viewer_id, some):
                found[user.user_id] = UserView(user, presence)
        return found

    async def members(
        self, viewer_id: str, members: Sequence[ChatMember]
    ) -> list[tuple[ChatMember, UserView | None]]:
        users = await self.users(viewer_id, [member.user_id for member in members])
        return [(member, users.get(member.user_id)) for member in members]

    async def _is_bot(self, user_id: str) -> bool:
        """A program follows the log; nobody looks at what it has not read."""
        user = await self._accounts.user(user_id)
        return user is not None and user.is_bot

    def _row(self, at: ChatSummary) -> OverviewChat:
        return OverviewChat(
            chat_id=at.chat_id,
            epoch=at.epoch,
            head=at.head,
            last_acked_sequence=at.last_acked_sequence,
            read_up_to=at.read_up_to,
            unread=at.unread,
            unread_more=at.unread_more,
            left=True if at.left else UNSET,
            muted=is_muted(at.muted_until, self._clock()),
            muted_until=at.muted_until,
        )

    # Mutes

    async def mute(self, chat_id: str, user_id: str, until: str | None) -> None:
        """Mute the chat for this member and notify their devices. `until` comes from `muted_time`."""
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        await self._member_states.mute(user_id, chat_id, until)
        self._signals.publish(MuteSignal(chat_id, user_id, until))

    async def set_notify(self, chat_id: str, user_id: str, notify: Notify) -> None:
        """Which messages of the chat notify this member."""
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        await self._member_states.set_notify(user_id, chat_id, notify)

    async def settings(self, chat_id: str, user_id: str) -> MemberSettings:
        return (await self._member_states.settings(chat_id, [user_id]))[user_id]

    def _notify_devices(self, signal: MuteSignal) -> None:
        frame = ChatChanged(chat_id=signal.chat_id, change="muted", muted_until=signal.until)
        self._audience.tell_people([signal.user_id], frame)


def is_muted(until: str | None, now_ms: int) -> bool:
    return until is not None and from_iso(until) > now_ms


def muted_time(text: str | None) -> str | None:
    """The time in the protocol's format, or None."""
    try:
        return None if text is None else iso(from_iso(text))
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(NO_TIME) from error


def _with_names(row: OverviewChat, at: ChatSummary, users: dict[str, UserView]) -> OverviewChat:
    peer = users.get(at.peer_id or "")
    return structs.replace(
        row,
        type=at.chat_type.value,
        title=at.title,
        peer=None if peer is None else _peer(peer),
        last_entry=None if at.last_entry is None else decode_entry(at.last_entry),
    )


def _peer(view: UserView) -> Peer:
    user, presence = view.user, view.presence
    is_bot = True if user.is_bot else UNSET
    return Peer(user.user_id, user.username, user.display_name, presence.status, presence.last_seen, is_bot)
