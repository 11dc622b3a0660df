"""Notifications as deliveries: who is owed one, whether it still goes out, and what became of it.

A recipient is one device of one person. Everything is decided again when a notification goes out, by what is
true then.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from parley.clock import MS_PER_SECOND, Clock, from_iso
from parley.core.fanout import FanoutSizes, may_notify, strategy_of
from parley.core.notifications import (
    NEW_MESSAGE,
    NotificationFacts,
    SkipReason,
    decide_notification,
    is_quiet,
    preview_of,
    wanted,
)
from parley.core.push_devices import NotificationOutcome, Provider, PushDevice, PushOutcome
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.ports import Delivery
from parley.ephemeral.attention import people_there
from parley.ephemeral.ports import Registry
from parley.model import AccountState, Fanout, Kind, Persisted, QuietHours, User
from parley.people.caches import ReadCache
from parley.push.ports import (
    SEPARATOR,
    Notification,
    PushAnswer,
    PushProvider,
    PushVerdict,
    recipient_of,
)
from parley.push.registrations import is_signed_in_elsewhere
from parley.push.unconfirmed import Unconfirmed
from parley.records.kinds import Kinds
from parley.store.ports import Store
from parley.telemetry import Metrics
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import OVERVIEW_CHATS_MAX, UNREAD_MAX

CHATS_CACHED_MAX = 2_000
MEMBERS_PER_READ = 1_000
COLLAPSE_BYTES = 18
"""24 characters: a Topic of Web Push may have 32."""


class ChatAudience(Struct, frozen=True):
    """The strategy of a chat, and the members that it may notify; of a `read` chat they are not read."""

    strategy: Fanout
    member_ids: tuple[str, ...]


class PushRecipient(Struct, frozen=True):
    """One device of a person."""

    channel: PushChannel
    device: PushDevice

    async def wants(self, entry: Entry) -> bool:
        return await self.channel.wants(self.device.user_id, entry)

    async def attempt(self, delivery: Delivery) -> DeliveryFailure | None:
        return await self.channel.attempt(self.device, delivery)


class PushChannel:
    """Notifies the devices of people who are away."""

    def __init__(
        self,
        *,
        store: Store,
        kinds: Kinds,
        registry: Registry,
        providers: Mapping[Provider, PushProvider],
        sizes: FanoutSizes,
        too_old_seconds: int,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._push = push = kinds.push
        self._consents = kinds.consents
        self._accounts = kinds.accounts
        self._sessions = kinds.sessions
        self._registry = registry
        self._providers = providers
        self._sizes = sizes
        self._too_old_ms = too_old_seconds * MS_PER_SECOND
        self._clock = clock
        self._metrics = metrics
        self.unconfirmed = Unconfirmed(registry, store.member_states, push.devices, clock)
        self._audiences = ReadCache(self._read_audiences, clock, CHATS_CACHED_MAX)

    # Who is owed a notification

    async def owed(self, news: Persisted) -> list[str]:
        if any(stored.change is not None for stored in news.positions):
            self._audiences.forget(news.chat_id)
        entries = _messages(news)
        newest_ms = max((from_iso(entry.created_at) for entry in entries), default=0)
        if not entries or newest_ms < self._clock() - self._too_old_ms:
            return []
        audience = await self._audiences.one(news.chat_id)
        if audience is None:
            return []
        candidates = await self._candidates(news.chat_id, audience, entries)
        away = await self._away(candidates)
        connected = set(candidates).difference(away)
        self.unconfirmed.expect(news.chat_id, connected, entries[0].sequence, entries[-1].sequence)
        devices = await self._push.devices.of(away) if away else {}
        if audience.strategy is Fanout.HYBRID and devices:
            notifying = await self._to_notify(news.chat_id, list(devices), entries)
            devices = {user_id: devices[user_id] for user_id in notifying}
        return [
            recipient_of(device.user_id, device.device_id)
            for person in devices.values()
            for device in person
            if device.created_ms <= newest_ms
        ]

    async def _candidates(self, chat_id: str, audience: ChatAudience, entries: Sequence[Entry]) -> list[str]:
        """The members who may get a queue by the chat's strategy, whether they are away or not."""
        senders = {entry.sender_id for entry in entries}
        only_sender = next(iter(senders)) if len(senders) == 1 else ""
        people: Sequence[str] = audience.member_ids
        if audience.strategy is Fanout.READ:
            role = self._store.directory.role
            people = [user_id for user_id in _mentioned(entries) if await role(chat_id, user_id)]
        return [user_id for user_id in people if user_id != only_sender]

    async def _to_notify(self, chat_id: str, user_ids: Sequence[str], entries: Sequence[Entry]) -> list[str]:
        """Of members of a `hybrid` chat with a device, those who want the notification."""
        settings = await self._store.member_states.settings(chat_id, user_ids)
        mentioned, now_ms = _mentioned(entries), self._clock()
        return [
            user_id
            for user_id, chosen in settings.items()
            if may_notify(
                chosen, is_mentioned=user_id in mentioned, is_muted=_is_muted(chosen.muted_until, now_ms)
            )
        ]

    async def _away(self, user_ids: list[str]) -> list[str]:
        there = await people_there(self._registry, user_ids)
        return [user_id for user_id in user_ids if user_id not in there]

    async def strategy(self, chat_id: str) -> Fanout:
        """Of a chat now, by its size or by choice."""
        count = await self._store.directory.member_count(chat_id)
        return strategy_of(count, await self._push.fanouts.of(chat_id), self._sizes)

    async def _read_audiences(self, chat_ids: Sequence[str]) -> dict[str, ChatAudience]:
        found = {}
        for chat_id in chat_ids:
            strategy = await self.strategy(chat_id)
            members = () if strategy is Fanout.READ else await self._member_ids(chat_id)
            found[chat_id] = ChatAudience(strategy, members)
        return found

    async def _member_ids(self, chat_id: str) -> tuple[str, ...]:
        found: list[str] = []
        while True:
            page = await self._store.directory.members(chat_id, found[-1] if found else "", MEMBERS_PER_READ)
            found += [member.user_id for member in page]
            if len(page) < MEMBERS_PER_READ:
                return tuple(found)

    # Whether it goes out

    async def recipient(self, recipient_id: str, stream_id: str) -> PushRecipient | None:
        user_id, _, device_id = recipient_id.partition(SEPARATOR)
        devices = (await self._push.devices.of([user_id])).get(user_id, [])
        device = next((device for device in devices if device.device_id == device_id), None)
        return PushRecipient(self, device) if device is not None else None

    async def wants(self, user_id: str, entry: Entry) -> bool:
        settings = await self._store.member_states.settings(entry.chat_id, [user_id])
        if wanted(entry, user_id, settings[user_id]) is not None:
            return False
        return not await self._has_blocked(user_id, entry.sender_id)

    async def attempt(self, device: PushDevice, delivery: Delivery) -> DeliveryFailure | None:
        entry = delivery.entry
        place = (entry.chat_id, entry.sequence, device.user_id, device.device_id)
        known = await self._push.outcomes.find(*place)
        if known is not None and known.outcome is NotificationOutcome.PUSHED:
            return (
                None  # it is told of twice, or the worker died before it noted the notification in the queue
            )
        user = await self._accounts.user(device.user_id)
        silence = await self._silence(device, user, entry)
        if silence is not None:
            if silence in (SkipReason.LOGGED_OUT, SkipReason.ACCOUNT):
                await self._push.devices.remove(device.user_id, device.device_id)
            await self._note(device, entry, NotificationOutcome.SKIPPED, silence.value)
            return None
        provider = self._providers.get(device.provider)
        if provider is None:
            return DeliveryFailure(Fault.UNAUTHORIZED, f"{device.provider.value} is not configured")
        is_repeated = known is not None and known.outcome is NotificationOutcome.RINGING
        notification = await self._notification(device, delivery, is_repeated)
        await self._note(device, entry, NotificationOutcome.RINGING, "", counts=False)
        return await self._settle(device, entry, await provider.send(device, notification))

    async def _settle(self, device: PushDevice, entry: Entry, answer: PushAnswer) -> DeliveryFailure | None:
        """Keep what the provider answered, and do what it means."""
        if answer.verdict is PushVerdict.TAKEN:
            await self._note(device, entry, NotificationOutcome.PUSHED, answer.detail)
            return None
        if answer.verdict is PushVerdict.GONE:
            await self._push.devices.remove(device.user_id, device.device_id, device.address)
            await self._note(device, entry, NotificationOutcome.REFUSED, answer.detail)
            return None
        failure = answer.failure
        assert failure is not None
        outcome = NotificationOutcome.FAILED if failure.is_temporary else NotificationOutcome.REFUSED
        if failure.may_have_arrived:
            await self._note(device, entry, NotificationOutcome.RINGING, answer.detail)
        else:
            is_ours = failure.fault is Fault.UNAUTHORIZED
            await self._note(device, entry, outcome, answer.detail, label="unauthorized" if is_ours else "")
        return failure

    async def _note(
        self,
        device: PushDevice,
        entry: Entry,
        outcome: NotificationOutcome,
        detail: str,
        *,
        label: str = "",
        counts: bool = True,
    ) -> None:
        """Durable before it returns. `label`: for the metric, if it is not the outcome."""
        await self._push.outcomes.note(
            PushOutcome(
                chat_id=entry.chat_id,
                sequence=entry.sequence,
                user_id=device.user_id,
                device_id=device.device_id,
                provider=device.provider,
                outcome=outcome,
                detail=detail,
                at_ms=self._clock(),
            )
        )
        if counts:
            self._metrics.push_outcomes.labels(device.provider.value, label or outcome.value).inc()

    async def _silence(self, device: PushDevice, user: User | None, entry: Entry) -> SkipReason | None:
        store, user_id, now_ms = self._store, device.user_id, self._clock()
        settings = (await store.member_states.settings(entry.chat_id, [user_id]))[user_id]
        sessions = await self._sessions.of(user_id)
        there = await people_there(self._registry, [user_id])
        quiet = user.do_not_disturb if user is not None else None
        facts = NotificationFacts(
            user_id=user_id,
            is_member=await store.directory.role(entry.chat_id, user_id) is not None,
            account=user.state if user is not None else AccountState.DELETED,
            is_bot=user is not None and user.is_bot,
            settings=settings,
            has_blocked_sender=await self._has_blocked(user_id, entry.sender_id),
            is_active=bool(there),
            is_logged_in=is_signed_in_elsewhere(user)
            or any(
                session.device_id == device.device_id and session.expires_at_ms > now_ms
                for session in sessions
            ),
            is_older=from_iso(entry.created_at) < device.created_ms,
            rung_through=await self._push.outcomes.rung_through(entry.chat_id, user_id, device.device_id),
            is_muted=_is_muted(settings.muted_until, now_ms),
            is_quiet=quiet is not None and is_quiet(quiet, local_minute(quiet, now_ms)),
        )
        return decide_notification(entry, facts)

    async def _has_blocked(self, user_id: str, sender_id: str) -> bool:
        said = await self._consents.of_one(user_id)
        return sender_id in said.blocks

    # What it says

    async def _notification(self, device: PushDevice, delivery: Delivery, is_repeated: bool) -> Notification:
        entry = delivery.entry
        return Notification(
            event_id=delivery.event_id,
            collapse_id=collapse_id_of(entry.chat_id),
            chat_id=entry.chat_id,
            message_id=entry.message_id,
            sender_id=entry.sender_id,
            sequence=entry.sequence,
            created_at=entry.created_at,
            title=await self._title(entry) if device.preview else NEW_MESSAGE,
            content=preview_of(entry) if device.preview else None,
            badge=await self._badge(device),
            is_repeated=is_repeated,
        )

    async def _title(self, entry: Entry) -> str:
        sender = await self._accounts.user(entry.sender_id)
        chat = await self._store.directory.chat(entry.chat_id)
        name = sender.display_name if sender is not None else NEW_MESSAGE
        return f"{name} in {chat.title}" if chat is not None and chat.title else name

    async def _badge(self, device: PushDevice) -> int:
        """How many messages of all chats are unread."""
        token, unread = None, 0
        while True:
            page = await self._store.overviews.changed(
                device.user_id, device.device_id, token, OVERVIEW_CHATS_MAX, brief=True
            )
            unread += sum(chat.unread for chat in page.positions if not chat.left)
            if page.complete or unread >= UNREAD_MAX:
                return min(unread, UNREAD_MAX)
            token = page.token

    async def close(self) -> None:
        """Close connections; the next notification opens them again."""
        for provider in self._providers.values():
            await provider.close()


def collapse_id_of(chat_id: str) -> str:
    """Says which notification a newer one replaces, and nothing about the chat."""
    digest = hashlib.sha256(chat_id.encode()).digest()
    return urlsafe_b64encode(digest[:COLLAPSE_BYTES]).decode("ascii")


def local_minute(hours: QuietHours, now_ms: int) -> int:
    """The minute of the day where the person lives."""
    moment = datetime.fromtimestamp(now_ms / MS_PER_SECOND, UTC).astimezone(ZoneInfo(hours.timezone))
    return moment.hour * 60 + moment.minute


def _is_muted(until: str | None, now_ms: int) -> bool:
    return until is not None and from_iso(until) > now_ms


def _mentioned(entries: Sequence[Entry]) -> list[str]:
    return sorted({user_id for entry in entries for user_id in entry.mentions or ()})


def _messages(news: Persisted) -> list[Entry]:
    """The messages in the news. What cannot be read notifies nobody."""
    found = []
    for stored in news.positions:
        if stored.wire is None:
            continue
        try:
            entry = decode_entry(stored.wire)
        except msgspec.DecodeError:
            continue
        if entry.kind == Kind.MESSAGE.value:
            found.append(entry)
    return found
