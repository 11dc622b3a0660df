"""An export of another chat server, brought into a store through its ports.

Authors, order, times and threads are kept. A message is stored as if its author sent it now, with its own
time as `display_time`. Everything has an id that follows from the export, so an import may be repeated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct, field

from parley import ids
from parley.clock import Clock, iso
from parley.core import marks as marking
from parley.core.marks import MessageMark
from parley.core.shown_text import shown_text
from parley.errors import Refusal, Refused, StoreUnavailable
from parley.migration import workspaces
from parley.migration.workspaces import ImportedChat, ImportedMessage, ImportedPerson, Workspace
from parley.model import (
    AccountState,
    Action,
    Change,
    ChatType,
    Draft,
    Kind,
    Role,
    StoredChat,
    Target,
    User,
)
from parley.records.amendments import Amendments
from parley.records.kinds import Kinds
from parley.store.ports import Engine
from parley.wire.codec import decode_entry
from parley.wire.limits import (
    ABOUT_CHARS_MAX,
    DISPLAY_NAME_CHARS_MAX,
    MENTIONS_MAX,
    MESSAGE_BYTES_MAX,
    PAGE_ENTRIES_MAX,
    REACTIONS_MAX,
    TITLE_CHARS_MAX,
    USERNAME_CHARS_MAX,
)

NO_PASSWORD = "!"
"""No password has this hash. An operator gives the person one: parley user passwd."""
FIRST_EPOCH = 1
DRAFTS_MAX = 200
CUT = "… [cut]"
NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")
NAMES_TRIED_MAX = 100

OnProgress = Callable[["ImportReport"], None]


class ImportReport(Struct):
    """What an import has done. `problems`: what was not brought in, and how often."""

    people_made: int = 0
    people_there: int = 0
    chats_made: int = 0
    chats_there: int = 0
    messages_stored: int = 0
    messages_there: int = 0
    reactions_stored: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)


class StoredPlace(Struct, frozen=True):
    """Where an entry is, and whose it is."""

    message_id: str
    sequence: int
    sender_id: str
    is_deleted: bool = False

    def target(self, stored: StoredChat) -> Target:
        """What an append must know of the message that a draft is about."""
        is_group = stored.chat_type is ChatType.GROUP
        return Target(
            sequence=self.sequence, sender_id=self.sender_id, is_group=is_group, is_deleted=self.is_deleted
        )


class WorkspaceImport:
    """One import. `matches_names`: an account with the same username is the same person."""

    def __init__(
        self,
        workspace: Workspace,
        engine: Engine,
        clock: Clock,
        *,
        matches_names: bool = False,
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self._workspace = workspace
        self._engine = engine
        self._kinds = Kinds(engine, clock)
        self._amendments = Amendments(engine.records)
        self._clock = clock
        self._matches_names = matches_names
        self._on_progress = on_progress
        self._users: dict[str, str] = {}
        """The user of each person, by the key of the export."""
        self._gone: list[str] = []
        self.report = ImportReport()

    async def run(self) -> ImportReport:
        for person in self._workspace.people():
            await self._bring_person(person)
        for chat in self._workspace.chats():
            await self._bring_chat(chat)
            self._on_progress(self.report)
        for user_id in self._gone:  # last: a disabled account may not write
            await self._kinds.account_admin.set_state(user_id, AccountState.DISABLED, "")
        self.report.left_out = {what: count for what, count in self._workspace.left_out.items() if count}
        return self.report

    # People

    async def _bring_person(self, person: ImportedPerson) -> None:
        user_id = workspaces.user_id(self._workspace.source, person.key)
        found = await self._kinds.accounts.user(user_id)
        if found is None and self._matches_names:
            named = await self._kinds.accounts.user_by_name(person.username)
            found = named[0] if named is not None else None
        if found is None:
            await self._add(user_id, person)
            self.report.people_made += 1
        else:
            self.report.people_there += 1
            user_id = found.user_id
        self._users[person.key] = user_id
        is_own = user_id == workspaces.user_id(self._workspace.source, person.key)
        if is_own and person.is_gone:
            self._gone.append(user_id)
            if found is not None and found.state is AccountState.DISABLED:
                await self._kinds.account_admin.set_state(user_id, AccountState.ACTIVE, "")

    async def _add(self, user_id: str, person: ImportedPerson) -> None:
        for number in range(1, NAMES_TRIED_MAX):
            username = _username(person.username, number)
            user = User(
                user_id,
                username,
                shown_text(person.display_name[:DISPLAY_NAME_CHARS_MAX]) or username,
                shown_text(person.about[:ABOUT_CHARS_MAX]),
                False,
                iso(self._clock()),
            )
            if await self._kinds.accounts.add_user(user, NO_PASSWORD):
                return
        raise StoreUnavailable(f"no username is free for {person.username}")

    # Chats

    async def _bring_chat(self, chat: ImportedChat) -> None:
        try:
            stored = await self._chat(chat)
            if stored is None:
                self.report.problems["chats without anybody"] += 1
                return
            await self._bring_messages(chat, stored)
        except Refused as refused:
            self.report.problems[f"{chat.title or chat.key}: {refused.refusal.reason}"] += 1

    async def _chat(self, chat: ImportedChat) -> StoredChat | None:
        chat_id = workspaces.chat_id(self._workspace.source, chat)
        found = await self._engine.directory.chat(chat_id)
        if found is not None:
            self.report.chats_there += 1
            return found
        people = list(dict.fromkeys(self._users[key] for key in (*chat.members, *self._authors(chat))))
        if not people:
            return None
        creator = self._users.get(chat.creator, "")
        owner, now = creator if creator in people else people[0], iso(self._clock())
        is_direct = chat.is_direct and len(people) <= 2
        made = StoredChat(
            chat_id,
            ChatType.DIRECT if is_direct else ChatType.GROUP,
            None if is_direct else shown_text((chat.title or chat.key)[:TITLE_CHARS_MAX]) or chat_id,
            owner,
            now,
            now,
            FIRST_EPOCH,
        )
        others = [person for person in people if person != owner]
        stored, is_new = await self._engine.directory.create_chat(made, others)
        self.report.chats_made += is_new
        self.report.chats_there += not is_new
        return stored

    def _authors(self, chat: ImportedChat) -> Iterable[str]:
        """Those who have left are members while their messages and reactions are stored."""
        before = dict(self._workspace.left_out)
        authors: dict[str, None] = {}
        for message in self._workspace.messages(chat):
            authors |= dict.fromkeys((message.author, *(who for who, _ in message.reactions)))
        self._workspace.left_out.clear()
        self._workspace.left_out.update(before)
        return authors

    # Messages

    async def _bring_messages(self, chat: ImportedChat, stored: StoredChat) -> None:
        there = await self._stored_ids(stored.chat_id)
        drafts: list[Draft] = []
        pending: set[str] = set()
        written = False
        for message in self._workspace.messages(chat):
            client_id = workspaces.client_message_id(self._workspace.source, chat, message.key)
            root = workspaces.client_message_id(self._workspace.source, chat, message.thread)
            if message.thread and root in pending:
                there |= await self._append(stored, drafts)
                drafts, pending = [], set()
            about = there.get(root) if message.thread else None
            if client_id in there or client_id in pending:
                self.report.messages_there += 1
                await self._mark_reply(stored.chat_id, about, there.get(client_id))
                continue
            drafts.append(self._draft(stored, message, client_id, about))
            pending.add(client_id)
            written = True
            if len(drafts) >= min(DRAFTS_MAX, self._engine.batching.drafts_max):
                there |= await self._append(stored, drafts)
                drafts, pending = [], set()
        there |= await self._append(stored, drafts)
        written = await self._bring_reactions(chat, stored, there) or written
        if written and stored.chat_type is ChatType.GROUP:
            await self._remove_who_left(chat, stored)
        await self._mark_published(stored.chat_id)

    async def _mark_reply(self, chat_id: str, about: StoredPlace | None, reply: StoredPlace | None) -> None:
        """A process may have died between a reply and its mark."""
        if about is not None and reply is not None:
            mark = marking.reply_mark(chat_id, about.sequence, reply.sequence, reply.sequence)
            await self._amendments.mark([mark])

    async def _bring_reactions(
        self, chat: ImportedChat, stored: StoredChat, there: dict[str, StoredPlace]
    ) -> bool:
        """Whether there were new ones. They come after all messages: no export says when they were made."""
        source, drafts, written = self._workspace.source, list[Draft](), False
        for message in self._messages_again(chat):
            about = there.get(workspaces.client_message_id(source, chat, message.key))
            if about is None:
                continue
            for person, reaction in message.reactions[:REACTIONS_MAX]:
                client_id = workspaces.reaction_id(source, chat, message.key, person, reaction)
                draft = self._reaction(stored, about, self._users[person], reaction, client_id)
                if (made := there.get(client_id)) is None:
                    drafts.append(draft)
                else:
                    await self._mark_all(stored.chat_id, {client_id: made}, [draft])
                if len(drafts) >= min(DRAFTS_MAX, self._engine.batching.drafts_max):
                    await self._append(stored, drafts)
                    drafts, written = [], True
        await self._append(stored, drafts)
        return written or bool(drafts)

    def _messages_again(self, chat: ImportedChat) -> Iterable[ImportedMessage]:
        """The same once more: what is left out was counted before."""
        before = dict(self._workspace.left_out)
        yield from self._workspace.messages(chat)
        self._workspace.left_out.clear()
        self._workspace.left_out.update(before)

    def _reaction(
        self, stored: StoredChat, about: StoredPlace, user_id: str, reaction: str, client_id: str
    ) -> Draft:
        return Draft(
            chat_id=stored.chat_id,
            sender_id=user_id,
            content=reaction,
            client_message_id=client_id,
            client_key=ids.client_key(client_id),
            kind=Kind.REACTION.value,
            target_id=about.message_id,
            on=True,
            target=about.target(stored),
        )

    async def _stored_ids(self, chat_id: str) -> dict[str, StoredPlace]:
        """The client ids in a chat, and their entries. Engines may forget keys, but no entries."""
        found: dict[str, StoredPlace] = {}
        after = 0
        while True:
            page = await self._engine.log.read(chat_id, after, PAGE_ENTRIES_MAX)
            for entry in map(decode_entry, page.entries):
                if entry.client_message_id is not None:
                    found[entry.client_message_id] = StoredPlace(
                        entry.message_id, entry.sequence, entry.sender_id, entry.deleted is True
                    )
            if page.complete:
                return found
            after = page.to_sequence

    def _draft(
        self, stored: StoredChat, message: ImportedMessage, client_id: str, root: StoredPlace | None
    ) -> Draft:
        mentions = [self._users[key] for key in message.mentions if key in self._users]
        return Draft(
            chat_id=stored.chat_id,
            sender_id=self._users[message.author],
            content=_fitting(message.text),
            client_message_id=client_id,
            client_key=ids.client_key(client_id),
            display_time=iso(message.at_ms),
            mentions=tuple(mentions[:MENTIONS_MAX]),
            reply_to=root.message_id if root is not None else None,
            target=root.target(stored) if root is not None else None,
        )

    async def _append(self, stored: StoredChat, drafts: list[Draft]) -> dict[str, StoredPlace]:
        """Where each was stored. A refusal is a problem of that message; others go on."""
        placed: dict[str, StoredPlace] = {}
        if not drafts:
            return placed
        await self._join(stored, {draft.sender_id for draft in drafts})
        result = await self._engine.log.append(drafts)
        for draft, outcome in zip(drafts, result.outcomes, strict=True):
            if isinstance(outcome, Refusal):
                if outcome.temporary:
                    raise StoreUnavailable(f"{outcome.reason}; import again: what is stored stays")
                self.report.problems[outcome.reason] += 1
                continue
            if draft.kind == Kind.MESSAGE.value:
                self.report.messages_stored += not outcome.deduplicated
                self.report.messages_there += outcome.deduplicated
            else:
                self.report.reactions_stored += not outcome.deduplicated
            place = StoredPlace(outcome.message_id, outcome.sequence, draft.sender_id)
            placed[str(draft.client_message_id)] = place
        await self._mark_all(stored.chat_id, placed, drafts)
        self._on_progress(self.report)
        return placed

    async def _mark_all(self, chat_id: str, placed: dict[str, StoredPlace], drafts: list[Draft]) -> None:
        """Replies and reactions, by the messages that they are about."""
        marks: list[MessageMark] = []
        for draft in drafts:
            place = placed.get(str(draft.client_message_id))
            if place is None or draft.target is None:
                continue
            about, at = draft.target.sequence, place.sequence
            if draft.kind == Kind.REACTION.value:
                mark = marking.reaction_mark(chat_id, about, draft.sender_id, draft.content, at, is_on=True)
            else:
                mark = marking.reply_mark(chat_id, about, at, at)
            marks.append(mark)
        if marks:
            await self._amendments.mark(marks)

    async def _join(self, stored: StoredChat, senders: set[str]) -> None:
        """An earlier import may have removed authors who are in the chat no more."""
        for sender in sorted(senders):
            if await self._engine.directory.role(stored.chat_id, sender) is None:
                await self._change(stored, stored.created_by, Action.JOINED, sender)

    async def _remove_who_left(self, chat: ImportedChat, stored: StoredChat) -> None:
        members = {self._users[key] for key in chat.members}
        for author in self._authors(chat):
            user_id = self._users[author]
            has_left = bool(members) and user_id not in members and user_id != stored.created_by
            if has_left and await self._engine.directory.role(stored.chat_id, user_id) is not None:
                await self._change(stored, user_id, Action.LEFT, user_id)

    async def _change(self, stored: StoredChat, actor: str, action: Action, user_id: str) -> None:
        content = {"action": action, "user_id": user_id, "role": Role.MEMBER}
        draft = Draft(
            chat_id=stored.chat_id,
            sender_id=actor,
            content=msgspec.json.encode(content).decode(),
            content_type="application/json",
            kind=Kind.MEMBER.value,
            change=Change(action, user_id),
        )
        (outcome,) = (await self._engine.log.append([draft])).outcomes
        if isinstance(outcome, Refusal):
            self.report.problems[outcome.reason] += 1

    async def _mark_published(self, chat_id: str) -> None:
        """What was said years ago is no news for a bus."""
        if self._engine.outbox is not None:
            head = (await self._engine.log.heads([chat_id]))[chat_id]
            self._engine.outbox.note_published(chat_id, head.sequence)


def _fitting(text: str) -> str:
    """A message that is longer than Parley's limit is cut, and says so."""
    data = text.encode(errors="replace")
    if len(data) <= MESSAGE_BYTES_MAX:
        return data.decode()
    return data[: MESSAGE_BYTES_MAX - len(CUT.encode())].decode(errors="ignore") + CUT


def _username(wanted: str, number: int) -> str:
    """A name that Parley allows; from the second on with a number, if it is taken."""
    name = NOT_IN_NAMES.sub("-", wanted.lower()).strip("-._") or "imported"
    ending = "" if number == 1 else f"-{number}"
    return name[: USERNAME_CHARS_MAX - len(ending)] + ending
