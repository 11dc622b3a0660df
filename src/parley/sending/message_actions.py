"""What is done to messages after they were sent: replies, edits, deletes, reactions.

Each is an entry, appended like any other draft. What follows from it is written after that, and before the
answer: the message is brought up to date where it is stored, and a mark says what was done. A note that is
written first, and removed last, is found again after a crash.

    note → entry → marks and message → (delete: nothing of it is left in files, or on other nodes)
        → note removed → answer

Two nodes may do this to the same message at once. An edit is marked before the message is changed, and a
delete looks for marks of edits after it: whichever comes second sees the other, and removes the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.clock import MS_PER_SECOND, Clock, from_iso
from parley.concurrency import map_concurrently
from parley.core import marks as marking
from parley.core.jobs import Job
from parley.core.marks import AmendmentNote, MessageMark
from parley.core.message_actions import (
    CHAT,
    DELETE,
    EDIT,
    HALF_REMOVED,
    MESSAGE,
    NOTED,
    REACTION,
    STORED,
    ReactionCount,
    counted,
    edit_window_content,
    edit_window_in,
    edited,
    tombstone,
)
from parley.errors import (
    NO_SUCH_MESSAGE,
    NOT_A_MEMBER,
    OutcomeUnknown,
    Refused,
    StoreError,
)
from parley.model import Appended, ChatSettings, ChatType, Draft, JobScope, Target
from parley.records.amendments import Amendments
from parley.records.chat_settings import SettingsOfChats
from parley.sending.amended_log import AmendedLog
from parley.sending.sender import Sender
from parley.store.ports import Directory, Log
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import REACTIONS_MAX

UNFINISHED_MS = 60_000
"""An older note was left by a process that died: whatever it began has ended."""
LOOK_SECONDS = 60.0
FIRST_LOOK_SECONDS = 5.0
LOOK_SECONDS_MAX = 3_600.0
JOB = "amendments"
FINISHED_AT_ONCE_MAX = 16
"""Those that wait for one look at the file of SQLite share it."""
READ_AT_ONCE_MAX = 16
"""Messages whose reactions and replies are read at once, for one page."""
TRACE_BYTES = 128

log = structlog.get_logger("parley.chats")
encode = msgspec.json.Encoder().encode


Forget = Callable[[str, list[int]], Awaitable[None]]


async def nothing_kept(chat_id: str, sequences: list[int]) -> None:
    """Where no body is kept beside the store."""


class Bodies(Protocol):
    """Changes entries where they are, in every tier."""

    async def rewrite(
        self, chat_id: str, sequences: Iterable[int], change: Callable[[Entry], Entry | None]
    ) -> None:
        """Replace these entries by what `change` makes of each; None leaves it. Durable before it returns."""
        ...

    async def scrub(self, traces: Sequence[bytes] | None = None) -> None:
        """See `Entries.scrub`."""
        ...


class MessageNow(Struct):
    """A message as it is now. `replied`: the message that it answers, where a reader sees that too."""

    entry: Entry
    reactions: list[ReactionCount]
    reply_count: int
    replied: Entry | None = None


class MessageActions:
    """`window_seconds`: how long a message may be edited in a chat that does not say it; 0 for ever.
    `forget`: whoever keeps bodies outside of the store forgets these, or StoreError.
    `fault_point`: called at the points of `ACTION_LABELS`.
    """

    def __init__(
        self,
        *,
        log: Log,
        directory: Directory,
        sender: Sender,
        amendments: Amendments,
        settings: SettingsOfChats,
        bodies: Bodies,
        clock: Clock,
        window_seconds: int = 0,
        forget: Forget = nothing_kept,
        fault_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._forget = forget
        self._log = log
        self._log_as_amended = AmendedLog(log, amendments)
        self._directory = directory
        self._sender = sender
        self._amendments = amendments
        self._settings = settings
        self._bodies = bodies
        self._clock = clock
        self._window_seconds = window_seconds
        self._fault_point = fault_point

    async def send(self, draft: Draft) -> Appended:
        """Append a draft that is about another message, and do what follows from it. Refused with the
        refusal.
        """
        draft.target = await self._target(draft)
        if draft.target is None:  # a retry is answered, all else is refused
            return await self._sender.send(draft)
        assert draft.client_key is not None
        note = AmendmentNote(draft.chat_id, draft.client_key, draft.target.sequence, self._clock())
        await self._amendments.begin(note)
        self._fault_point(NOTED)
        try:
            appended = await self._sender.send(draft)
        except Refused as error:
            if not error.refusal.temporary:
                await self._amendments.finish(note)
            raise
        self._fault_point(STORED)
        try:
            await self._finish(note, draft.sender_id)
        except StoreError as error:  # it is stored, and not yet done: a retry, or the job, goes on
            raise OutcomeUnknown(str(error)) from error
        return appended

    async def set_edit_window(
        self, chat_id: str, user_id: str, seconds: int | None, client_message_id: str
    ) -> Appended:
        """How long messages of a chat may be edited from now on; None: as long as the server allows."""
        draft = Draft(
            chat_id=chat_id,
            sender_id=user_id,
            content=edit_window_content(seconds),
            content_type="application/json",
            client_message_id=client_message_id,
            client_key=ids.client_key(client_message_id),
            kind=CHAT,
        )
        return await self.send(draft)

    # Facts

    async def _target(self, draft: Draft) -> Target | None:
        """What is known about the message that a draft is about."""
        chat_id = draft.chat_id
        if draft.kind == CHAT:
            chat = await self._directory.chat(chat_id)
            is_group = chat is not None and chat.chat_type is ChatType.GROUP
            return Target(sequence=marking.THE_CHAT, sender_id="", is_group=is_group)
        entry = await self._find(chat_id, draft.target_id or draft.reply_to)
        chat = await self._directory.chat(chat_id) if entry is not None else None
        if entry is None or chat is None:
            return None
        (settings,) = await self._settings.of([chat_id]) if draft.kind in (EDIT, DELETE) else [None]
        return Target(
            sequence=entry.sequence,
            sender_id=entry.sender_id,
            is_group=chat.chat_type is ChatType.GROUP,
            is_deleted=entry.deleted is True,
            is_held=settings is not None and settings.is_held,
            is_too_old=draft.kind == EDIT and settings is not None and self._is_too_old(entry, settings),
            has_room=draft.kind != REACTION or await self._has_room(entry, draft.content),
        )

    def _is_too_old(self, entry: Entry, settings: ChatSettings) -> bool:
        age_ms = self._clock() - from_iso(entry.created_at)
        return 0 < self._window_of(settings) * MS_PER_SECOND < age_ms

    async def edit_window(self, chat_id: str) -> int:
        """How many seconds a message of this chat may be edited; 0: for ever."""
        (settings,) = await self._settings.of([chat_id])
        return self._window_of(settings)

    def _window_of(self, settings: ChatSettings) -> int:
        own = settings.edit_window_seconds
        return self._window_seconds if own is None else own

    async def _has_room(self, entry: Entry, reaction: str) -> bool:
        found = {mark.parts[2] for mark in await self._marks(entry) if _is_reaction(mark)}
        return reaction in found or len(found) < REACTIONS_MAX

    async def _marks(self, entry: Entry) -> list[MessageMark]:
        marks = await self._amendments.marks(entry.chat_id, entry.sequence)
        return [mark for mark in marks if mark.is_on]

    async def _find(self, chat_id: str, message_id: str | None) -> Entry | None:
        """A message of a chat, as it is now; None if it is another kind of entry."""
        place = await self._log.find_message(message_id or "", [chat_id])
        if place is None:
            return None
        page = await self._log_as_amended.read(chat_id, place[1] - 1, 1)
        entry = decode_entry(page.entries[0]) if page.entries else None
        return entry if entry is not None and entry.kind == MESSAGE else None

    async def _at(self, chat_id: str, sequence: int) -> Entry | None:
        page = await self._log.read(chat_id, sequence - 1, 1)
        return decode_entry(page.entries[0]) if page.entries else None

    # What follows from an entry

    async def _finish(self, note: AmendmentNote, sender_id: str | None) -> bool:
        """Do what is left to do for a note; False if its entry is not stored.

        `sender_id`: whose entry it must be: of an id that somebody else used nothing follows.
        """
        wire = await self._log.find_key(note.chat_id, note.client_key)
        entry = decode_entry(wire) if wire is not None else None
        if entry is None:
            return False
        if sender_id in (None, entry.sender_id):
            await self._apply(entry, note.target)
        await self._amendments.finish(note)
        return True

    async def _apply(self, entry: Entry, target: int) -> None:
        chat_id, at = entry.chat_id, entry.sequence
        if entry.kind == DELETE:
            await self._delete(entry, target)
        elif entry.kind == EDIT:
            await self._amendments.mark([marking.edit_mark(chat_id, target, at)])
            await self._edit(entry, target)
        elif entry.kind == REACTION and entry.reaction:
            is_on = entry.on is not False
            mark = marking.reaction_mark(chat_id, target, entry.sender_id, entry.reaction, at, is_on=is_on)
            await self._amendments.mark([mark])
        elif entry.kind == CHAT and (window := edit_window_in(entry.content)) is not None:
            await self._settings.note_edit_window(chat_id, window.edit_window_seconds, at)
        elif entry.kind == MESSAGE and entry.reply_to:
            await self._amendments.mark([marking.reply_mark(chat_id, target, at, at)])

    async def _edit(self, edit: Entry, target: int) -> None:
        await self._rewrite(edit.chat_id, [target], lambda message: edited(message, edit))
        message = await self._at(edit.chat_id, target)
        if message is not None and message.deleted is True:  # it came too late
            await self._remove(edit.chat_id, [message, edit])

    async def _delete(self, delete: Entry, target: int) -> None:
        """The body, those of all its edits, and its place among the replies of another message."""
        chat_id = delete.chat_id
        message = await self._at(chat_id, target)
        if message is None:
            return
        await self._rewrite(chat_id, [target], tombstone)
        self._fault_point(HALF_REMOVED)
        places = {int(mark.parts[1]) for mark in await self._marks(message) if mark.parts[0] == marking.EDIT}
        for note in await self._amendments.under_way(chat_id):
            wire = await self._log.find_key(chat_id, note.client_key) if note.target == target else None
            entry = decode_entry(wire) if wire is not None else None
            if entry is not None and entry.kind == EDIT:
                places.add(entry.sequence)
        edits = [entry for place in sorted(places) if (entry := await self._at(chat_id, place)) is not None]
        await self._remove(chat_id, [message, *edits])
        parent = await self._find(chat_id, message.reply_to) if message.reply_to else None
        if parent is not None:
            mark = marking.reply_mark(chat_id, parent.sequence, target, delete.sequence, is_on=False)
            await self._amendments.mark([mark])

    async def _remove(self, chat_id: str, entries: list[Entry]) -> None:
        """No body of these is read from now on, and none is left in a file."""
        sequences = [entry.sequence for entry in entries]
        await self._rewrite(chat_id, sequences, tombstone)
        await self._forget(chat_id, sequences)
        await self._bodies.scrub([trace_of(entry) for entry in entries])

    async def _rewrite(
        self, chat_id: str, sequences: list[int], change: Callable[[Entry], Entry | None]
    ) -> None:
        await self._bodies.rewrite(chat_id, sequences, change)

    # Reading

    async def message(self, user_id: str, chat_id: str, message_id: str) -> MessageNow:
        """A message of a chat as it is now, for a member."""
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        entry = await self._find(chat_id, message_id)
        if entry is None:
            raise Refused(NO_SUCH_MESSAGE)
        return await self._now(entry)

    async def lookup(self, user_id: str, chat_id: str, message_ids: Sequence[str]) -> list[MessageNow]:
        """Those of these messages of a chat that there are, in this order, as a member sees them."""
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)

        async def find(message_id: str) -> Entry | None:
            return await self._find(chat_id, message_id)

        found = await map_concurrently(find, dict.fromkeys(message_ids), READ_AT_ONCE_MAX)
        return await self.shown([entry for entry in found if entry is not None])

    async def shown(self, entries: Sequence[Entry]) -> list[MessageNow]:
        """These entries of one chat, which the caller may read, each with what a reader sees beside it."""
        here = {entry.message_id: entry for entry in entries}

        async def show(entry: Entry) -> MessageNow:
            if entry.kind != MESSAGE:
                return MessageNow(entry, [], 0)
            now = await self._now(entry)
            if entry.reply_to:
                now.replied = here.get(entry.reply_to) or await self._find(entry.chat_id, entry.reply_to)
            return now

        return await map_concurrently(show, entries, READ_AT_ONCE_MAX)

    async def _now(self, entry: Entry) -> MessageNow:
        by_reaction: dict[str, set[str]] = {}
        marks = await self._marks(entry)
        for mark in marks:
            if _is_reaction(mark) and entry.deleted is not True:
                _, user_id, reaction = mark.parts
                by_reaction.setdefault(reaction, set()).add(user_id)
        replies = sum(mark.parts[0] == marking.REPLY for mark in marks)
        return MessageNow(entry, counted(by_reaction), replies)

    async def find(self, chat_id: str, message_id: str) -> Entry | None:
        """A message of a chat as it is now, for operators."""
        return await self._find(chat_id, message_id)

    # After a crash

    @property
    def job(self) -> Job:
        return Job(
            name=JOB,
            does="finishes the edits, deletes and reactions that a dead process began",
            run=self.look,
            interval_seconds=LOOK_SECONDS,
            timeout_seconds=LOOK_SECONDS_MAX,
            first_seconds=FIRST_LOOK_SECONDS,
            scope=JobScope.CLUSTER,
        )

    async def look(self) -> None:
        """Finish what processes that died have begun. What was never stored is forgotten."""
        failed = await self._finish_until(self._clock() - UNFINISHED_MS)
        if failed is not None:
            raise failed

    async def finish_all(self) -> None:
        """Finish whatever was begun, before a store that no other process uses is served.

        What cannot be finished now is left to the job: readers see it as done.
        """
        failed = await self._finish_until(self._clock())
        if failed is not None:
            log.warning("an amendment is not finished yet", error=str(failed))

    async def _finish_until(self, until_ms: int) -> StoreError | None:
        """Finish what was begun until then. Returns why something could not be."""
        failures = list[StoreError]()

        async def finish(note: AmendmentNote) -> None:
            try:
                if not await self._finish(note, None):
                    await self._amendments.finish(note)
            except StoreError as error:  # such as a node that does not answer: it keeps no other chat
                failures.append(error)
            else:
                log.warning("an amendment was finished", chat_id=note.chat_id, target=note.target)
            await asyncio.sleep(0)

        notes = [note for note in await self._amendments.under_way() if note.since_ms <= until_ms]
        await map_concurrently(finish, notes, FINISHED_AT_ONCE_MAX)
        return failures[-1] if failures else None


def _is_reaction(mark: MessageMark) -> bool:
    return mark.parts[0] == marking.REACTION


def trace_of(entry: Entry) -> bytes:
    """What a stored copy of an entry has before its body, whatever that was at the time."""
    head, _, _ = encode(replace(entry, content="")).partition(b'"content":""')
    return head[-TRACE_BYTES:] + b'"content":"'
