"""The client as an application holds it: one person on one device, connected for as long as it takes."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from random import Random, SystemRandom
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from parley import ids
from parley.client.api import Api, base_url, open_http
from parley.client.chat import AllEntries, Chat, Entries
from parley.client.engine import Engine, Event, MustCheck, MustLoad
from parley.client.errors import CannotConnect, ClientError, Closed, RequestRefused
from parley.client.keeping import Cursor, Outgoing, open_keeper
from parley.client.line import Line, dial
from parley.client.link import Link, cause_of
from parley.client.live import Update
from parley.client.looking import find_stored
from parley.client.people import People
from parley.client.sending import Sending
from parley.client.settings import Settings
from parley.client.timing import Timing
from parley.client.updates import Updates
from parley.client.waiting import Waiting
from parley.clock import Clock, iso, wall_clock
from parley.errors import BAD_REQUEST
from parley.model import ChatType
from parley.wire.client_codec import CLIENT_CODECS
from parley.wire.frames import Entry, Hello, OverviewChat, PresenceView, Welcome

log = logging.getLogger("parley.client")

ERRANDS_AT_ONCE_MAX = 4
CLOSED = "this client is closed; what it had queued is sent by the next one with the same outbox file"
NO_UUID = BAD_REQUEST.because("a client_message_id is a UUIDv4")
STILL_QUEUED = BAD_REQUEST.because("a message with this client_message_id is on its way")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def connect(
    url: str,
    token: str,
    *,
    device_id: str | None = None,
    outbox: str | None = None,
    codec: str = "json",
    live: bool = True,
    start_offline: bool = False,
    timing: Timing | None = None,
    clock: Clock = wall_clock,
    random: Random | None = None,
) -> Client:
    """A client for `async with`.

    `outbox` names the file in which unacknowledged messages and cursors survive this process; without one
    they live in memory. `codec` is "json" or "msgpack". `live=False` asks for no live entries: what others
    send is then noticed at the next heartbeat. Entering waits for the server's welcome and raises
    CannotConnect or BadToken if none comes; with `start_offline` it returns at once, and whatever is sent
    waits for a connection. `device_id` must be that of the token; left out, the server is asked.
    """
    settings = Settings(
        url=base_url(url),
        token=token,
        device_id=device_id,
        outbox=outbox,
        codec=CLIENT_CODECS[codec],
        live=live,
        start_offline=start_offline,
        timing=timing or Timing(),
        clock=clock,
        random=random or SystemRandom(),
    )
    return Client(settings)


class Client(People):
    """One person on one device. Use it as `async with`, on one event loop."""

    api: Api
    engine: Engine

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting = Waiting()
        self._stack = AsyncExitStack()
        self._errands: set[asyncio.Task[None]] = set()
        self._errands_at_once = asyncio.Semaphore(ERRANDS_AT_ONCE_MAX)
        self.device_id = settings.device_id

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._executor = stack.enter_context(ThreadPoolExecutor(1, "parley-outbox"))
            self._keeper = await self._in_thread(open_keeper, self._settings.outbox)
            stack.push_async_callback(self._in_thread, self._keeper.close)
            self._http = await stack.enter_async_context(open_http())
            self.api = Api(self._http, self._settings.url, self._settings.token)
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        kept = await self._in_thread(self._keeper.load)
        self.engine = Engine(
            settings.codec, settings.timing, settings.random.random, kept, durable=self._keeper.blocking
        )
        for message in kept.outgoing:
            self._waiting.sendings[message.key] = Sending(message, self.engine, is_kept=True)
        self._link = Link(
            self.engine,
            self._dial,
            self._keeper,
            self._executor,
            settings.timing,
            settings.clock,
            settings.random.random,
            self._tell,
        )
        self._running = asyncio.create_task(self._run())
        stack.push_async_callback(self._stop_running)
        if not settings.start_offline:
            await self._until_welcome()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._waiting.failure is None and self.engine.online:
                await self._drain()
            if self._waiting.failure is None:
                await self._link.finish()
        finally:
            self._waiting.fail(self._waiting.failure or Closed(CLOSED))
            await self._stack.aclose()

    # Sending and reading

    @property
    def user_id(self) -> str:
        """Who this is; empty until the first welcome."""
        return self.engine.user_id

    @property
    def is_online(self) -> bool:
        return self.engine.online

    @property
    def unsent(self) -> list[Sending]:
        """Every message that is not yet acknowledged, also those that an earlier run left in the file."""
        return list(self._waiting.sendings.values())

    def chat(self, chat_id: str) -> Chat:
        return Chat(self, chat_id)

    def __aiter__(self) -> AllEntries:
        """Read every chat. See `AllEntries`."""
        self.check_open()
        if self._waiting.all_reader is not None:
            self._waiting.all_reader.close()
            self.engine.reading.stop_all()
        self._waiting.all_reader = AllEntries(self)
        self.engine.reading.read_all()
        self._link.poke()
        return self._waiting.all_reader

    def send(
        self,
        chat_id: str,
        content: str,
        content_type: str = "text/plain",
        display_time: str | None = None,
        client_message_id: str | None = None,
    ) -> Sending:
        """See `Chat.send`."""
        self.check_open()
        now_ms = self._settings.clock()
        message = Outgoing(
            chat_id=chat_id,
            client_message_id=client_message_id or self._new_id(),
            content=content,
            content_type=content_type,
            display_time=display_time or iso(now_ms),
            created_at_ms=now_ms,
        )
        self._check_id(message)
        self.engine.send(message)
        sending = Sending(message, self.engine, is_kept=not self._keeper.blocking)
        self._waiting.sendings[message.key] = sending
        self._link.poke()
        return sending

    async def mark_read(self, chat_id: str, up_to: int | str) -> None:
        """The person has read everything up to a sequence or a message_id; known to all when it returns."""
        self.check_open()
        number = self.engine.mark_read(chat_id, up_to)
        self._link.poke()
        try:
            await self._waiting.for_call(number)
        finally:
            self.engine.calls.drop(number)

    async def overview(self) -> list[OverviewChat]:
        """Every chat of the person: its head, how far this device is, what is unread. Asked anew."""
        self.check_open()
        wanted_round = self.engine.overviews.ask()
        self._link.poke()
        await self._waiting.for_overview(wanted_round)
        return list(self.engine.reading.positions.values())

    async def chats(self) -> list[OverviewChat]:
        """Every chat of the person as a person reads it, with title, last entry and whom it is with."""
        return await self.api.chats()

    async def create_chat(self, member_ids: list[str], title: str | None = None) -> Chat:
        """A group with these people and oneself as owner."""
        return self.chat((await self.api.create_chat(ChatType.GROUP, member_ids, title)).chat_id)

    async def direct_chat(self, user_id: str) -> Chat:
        """The chat with one other person; there is only ever one."""
        return self.chat((await self.api.create_chat(ChatType.DIRECT, [user_id], None)).chat_id)

    # What is live

    def updates(self) -> Updates:
        """A loop over everything that changes in what is shown beside the log. See `Update`."""
        return self.hear(lambda _: True)

    def hear(self, concerns: Callable[[Update], bool]) -> Updates:
        """The same for some of it."""
        self.check_open()
        return self._waiting.updates(concerns)

    async def open_chat(self, chat_id: str) -> None:
        """See `Chat.open`."""
        self.check_open()
        self._tell(self.engine.events())  # what came of an earlier opening is not for this one
        self.engine.live.open(chat_id)
        self._link.poke()
        await self._waiting.for_opening(chat_id)

    def close_chat(self, chat_id: str) -> None:
        """See `Chat.close`."""
        self.engine.live.close(chat_id)
        self._link.poke()

    def look_again(self) -> None:
        """At every chat that is open."""
        self.engine.live.look_again()
        self._link.poke()

    def type(self, chat_id: str) -> None:
        """See `Chat.type`."""
        self.check_open()
        self.engine.type(chat_id, self._link.now_ms())
        self._link.poke()

    def stop_typing(self, chat_id: str) -> None:
        """See `Chat.stop_typing`."""
        self.check_open()
        self.engine.live.typists.stop(chat_id)
        self._link.poke()

    def is_muted(self, chat_id: str) -> bool:
        return self.engine.live.is_muted(chat_id, self._settings.clock())

    def watch_presence(self, user_ids: Iterable[str]) -> None:
        """Keep these people's presence live, beside that of members of open chats; replaces the last call.

        At most 500 people are watched in all, these first. `presence` then answers at once, and `updates`
        tells what changes.
        """
        self.check_open()
        self.engine.live.presences.watch(user_ids)
        self._link.poke()

    async def presence(self, user_ids: Iterable[str]) -> list[PresenceView]:
        """Who of these people is there, and when each last was; what was asked is remembered for 30 s."""
        self.check_open()
        presences, wanted = self.engine.live.presences, list(dict.fromkeys(user_ids))
        known = {user_id: presences.recall(user_id, self._link.now_ms()) for user_id in wanted}
        unknown = [user_id for user_id, view in known.items() if view is None]
        if unknown:
            asked = await self.api.presence(unknown)
            presences.note_asked(asked, self._link.now_ms())
            known |= {view.user_id: view for view in asked}
        return [view for view in known.values() if view is not None]

    # What the loops use

    def check_open(self) -> None:
        """Raise why this client does no more work, if it does none."""
        self._waiting.check_open()

    def read(self, chat_id: str) -> Entries:
        self.check_open()
        before, inbox = self._waiting.readers.get(chat_id), self.engine.reading.inbox(chat_id)
        if before is not None and inbox is not None and inbox.failure is None:
            before.close()
            inbox.put_back()
        else:
            self._take_over(chat_id)
            self.engine.reading.read(chat_id)
        self._link.poke()
        reader = self._waiting.readers[chat_id] = Entries(self, chat_id)
        return reader

    def _take_over(self, chat_id: str) -> None:
        """Whoever reads this chat reads it no more; what he left unprocessed comes again."""
        reader = self._waiting.readers.pop(chat_id, None)
        if reader is not None:
            reader.close()
        elif self._waiting.all_reader is not None:
            self._waiting.all_reader.leave(chat_id)
        self.engine.reading.stop(chat_id)

    def seek(self, chat_id: str, after: int) -> None:
        """See `Chat.seek`."""
        self.check_open()
        self._take_over(chat_id)
        self.engine.cursors.move(chat_id, Cursor(sequence=after), self._link.now_ms())
        self._link.poke()

    def take(self, chat_id: str) -> Entry | None:
        entry = self.engine.reading.take(chat_id, self._link.now_ms())
        self._link.poke()
        return entry

    def processed(self, chat_id: str) -> None:
        self.engine.reading.done(chat_id, self._link.now_ms())
        self._link.poke()

    def drop_if_failed(self, chat_id: str) -> None:
        inbox = self.engine.reading.inbox(chat_id)
        if inbox is not None and inbox.failure is not None:
            self.engine.reading.stop(chat_id)

    # Life

    async def _run(self) -> None:
        try:
            await self._link.run(patient=self._settings.start_offline)
        except* ClientError as group:
            self._waiting.fail(cause_of(group))
        except* Exception as group:
            log.exception("the client failed")
            self._waiting.fail(Closed(f"this client failed: {group.exceptions[0]!r}"))

    async def _until_welcome(self) -> None:
        welcomed = asyncio.create_task(self._link.welcomed.wait())
        await asyncio.wait([welcomed, self._running], return_when=asyncio.FIRST_COMPLETED)
        welcomed.cancel()
        self.check_open()

    async def _drain(self) -> None:
        """Give messages that are on their way a moment to arrive."""
        self._waiting.all_sent.clear()
        if self._waiting.sendings:
            try:
                async with asyncio.timeout(self._settings.timing.drain_ms / 1000):
                    await self._waiting.all_sent.wait()
            except TimeoutError:
                log.warning("%d messages are not yet acknowledged", len(self._waiting.sendings))

    async def _stop_running(self) -> None:
        for task in [self._running, *self._errands]:
            task.cancel()
        await asyncio.wait([self._running, *self._errands])

    async def _dial(self) -> tuple[Line, Welcome]:
        settings = self._settings
        if self.device_id is None:
            self.device_id = await self._own_device_id()
        hello = Hello(id=0, token=settings.token, device_id=self.device_id, live=settings.live)
        line, welcome = await dial(self._http, settings.url, settings.codec, hello, settings.timing.answer_ms)
        try:
            await self._in_thread(self._keeper.claim, welcome.user_id, welcome.device_id)
        except BaseException:
            await line.close()
            raise
        return line, welcome

    async def _own_device_id(self) -> str:
        try:
            return await self.api.device_id()
        except RequestRefused as error:
            if error.temporary:
                raise CannotConnect(error.reason) from error
            raise

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case MustCheck():
                    self._send_for(self._look_for(event.message))
                case MustLoad():
                    self._send_for(self._load(event.chat_id))
                case _:
                    self._waiting.tell(event)

    def _send_for(self, errand: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _look_for(self, message: Outgoing) -> None:
        """Before an old message goes out again: it may be stored, and its id forgotten."""
        try:
            async with self._errands_at_once:
                ack = await find_stored(self.api, message)
        except ClientError as error:
            log.info("cannot tell whether an old message is stored, asking again later: %s", error)
            self.engine.outbox.check_failed(message.key, self._link.now_ms())
        else:
            if ack is None:
                self.engine.outbox.not_stored(message.key, self._settings.clock())
            else:
                self.engine.stored(message.key, ack, self._link.now_ms())
        self._link.poke()

    async def _load(self, chat_id: str) -> None:
        """An open chat, as it is now."""
        try:
            async with self._errands_at_once:
                picture = await self.api.picture(chat_id)
        except ClientError as error:
            refusal = error.refusal if isinstance(error, RequestRefused) else None
            log.info("cannot look at chat %s: %s", chat_id, error)
            self.engine.live.load_failed(chat_id, refusal, self._link.now_ms())
        else:
            self.engine.live.loaded(chat_id, picture)
        self._link.poke()

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._settings.random.getrandbits(128), version=4))

    def _check_id(self, message: Outgoing) -> None:
        if ids.client_key(message.client_message_id) is None:
            raise RequestRefused(NO_UUID)
        if message.key in self.engine.outbox:
            raise RequestRefused(STILL_QUEUED)

    async def _in_thread(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))
