"""Messages that are answered, edited, deleted and reacted to, over the ports of one engine."""

from collections.abc import Sequence

from parley import ids
from parley.bodies.writer import EntryWriter
from parley.clock import Clock
from parley.errors import Refusal, Refused
from parley.model import Appended, Draft, Kind, Outcome
from parley.records.amendments import Amendments
from parley.records.chat_settings import SettingsOfChats
from parley.sending.amended_log import AmendedLog
from parley.sending.answers import Done
from parley.sending.message_actions import MessageActions
from parley.sending.sender import Sender
from parley.store.ports import Engine, Log
from parley.wire.frames import Entry, RequestId
from tests.contracts.acting import decode_entry, message, new_id
from tests.contracts.cold_world import ColdWorld, synced
from tests.contracts.engines import OpenStore


class StraightSender(Sender):
    """Each draft is an append of its own."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        raise AssertionError("whoever amends waits for the answer")

    async def send_all(self, drafts: Sequence[Draft], heard: Done | None = None) -> list[Outcome]:
        return (await self._log.append(drafts)).outcomes


def make_life(engine: Engine, clock: Clock) -> MessageActions:
    """What is done to messages, over one engine without a cold tier."""
    bodies = EntryWriter(engine.log, engine.entries, None)
    sender = StraightSender(engine.log)
    return MessageActions(
        log=engine.log,
        directory=engine.directory,
        sender=sender,
        amendments=Amendments(engine.records),
        settings=SettingsOfChats(engine.records),
        bodies=bodies,
        clock=clock,
    )


class LifeWorld:
    """`cold`: with a cold tier. `window_seconds`: how long messages may be edited."""

    def __init__(self, store: OpenStore, cold: ColdWorld | None = None, window_seconds: int = 0) -> None:
        engine = store.engine
        self.store = store
        self.amendments = Amendments(engine.records)
        self.log: Log = store.log if cold is None else cold.log
        self.reader = AmendedLog(self.log, self.amendments)
        archiver = None if cold is None else cold.archiver
        self.bodies = EntryWriter(engine.log, engine.entries, archiver)
        self.sender = StraightSender(self.log)
        self.life = MessageActions(
            log=self.log,
            directory=store.directory,
            sender=self.sender,
            amendments=Amendments(engine.records),
            settings=SettingsOfChats(engine.records),
            bodies=self.bodies,
            clock=store.clock,
            window_seconds=window_seconds,
        )

    async def try_send(self, draft: Draft) -> Outcome:
        try:
            return await self.life.send(draft)
        except Refused as error:
            return error.refusal

    async def done(self, draft: Draft) -> Appended:
        """A draft that must be stored."""
        outcome = await self.try_send(draft)
        assert not isinstance(outcome, Refusal), outcome
        return outcome

    async def shown(self, chat_id: str) -> list[Entry]:
        """The log of a chat as a reader gets it."""
        return [decode_entry(wire) for _, wire in await synced(self.reader, chat_id) if wire is not None]

    async def entries(self, chat_id: str) -> list[Entry]:
        """The log of a chat as it is stored."""
        rows = await synced(self.log, chat_id)
        return [decode_entry(wire) for _, wire in rows if wire is not None]


def about(kind: Kind, chat_id: str, sender: str, target_id: str, content: str = "") -> Draft:
    client_id = new_id()
    return Draft(
        chat_id=chat_id,
        sender_id=sender,
        content=content,
        client_message_id=client_id,
        client_key=ids.client_key(client_id),
        kind=kind.value,
        target_id=target_id,
    )


def edit(chat_id: str, sender: str, target_id: str, content: str) -> Draft:
    return about(Kind.EDIT, chat_id, sender, target_id, content)


def delete(chat_id: str, sender: str, target_id: str) -> Draft:
    return about(Kind.DELETE, chat_id, sender, target_id)


def react(chat_id: str, sender: str, target_id: str, reaction: str, on: bool = True) -> Draft:
    draft = about(Kind.REACTION, chat_id, sender, target_id, reaction)
    draft.on = on
    return draft


def reply(chat_id: str, sender: str, target_id: str, content: str) -> Draft:
    draft = message(chat_id, sender, content)
    draft.reply_to = target_id
    return draft
