"""The client that an application uses: one person on one device, reconnected as often as needed."""

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
from weakref import WeakSet

from msgspec import UNSET, Struct, UnsetType

from parley import ids
from parley.client.api import Api, PeopleApi, base_url, open_http
from parley.client.chat import Chat, Sending
from parley.client.chat_model import ChatModel
from parley.client.connection import ConnectionLoop, WebSocketTransport, connect_transport, loop_ms
from parley.client.core import ClientCore
from parley.client.errors import CannotConnect, ClientError, Closed, RequestRefused
from parley.client.events import (
    ChatOpened,
    CheckMessage,
    ClientEvent,
    EntriesReady,
    LoadChat,
    MessageRefused,
    MessagesSaved,
    MessageStored,
    OverviewComplete,
    ReadMarkDone,
    RequestFailed,
    Update,
    What,
)
from parley.client.storage import MessageKey, OutgoingMessage, open_storage
from parley.client.streams import AllEntriesStream, EntryStream, UpdateStream
from parley.client.timing import Timing
from parley.client.tokens import RETRY_SECONDS, TokenFunction, TokenSource
from parley.clock import Clock, iso, wall_clock
from parley.errors import BAD_REQUEST, Refusal
from parley.model import ChatType, Kind, Privacy, QuietHours
from parley.wire.bodies import Me
from parley.wire.codec import CLIENT_CODECS, ClientCodec
from parley.wire.frames import Ack, Hello, OverviewChat, PresenceView, Refresh, Welcome
from parley.wire.limits import SEARCH_HITS_DEFAULT
from parley.wire.search_bodies import Hits

log = logging.getLogger("parley.client")

HTTP_TASKS_AT_ONCE_MAX = 4
DIFFERS = "what this device read of a chat is not what the server's log holds: %s"
NOT_ENTERED = "this client is not connected yet; use it as `async with`"
ENTERED_TWICE = "a client is entered once; `connect` makes another one"
CLOSED = "this client is closed; the next one with the same outbox file sends what is queued"
NO_UUID = BAD_REQUEST.because("a client_message_id is a UUIDv4")
STILL_QUEUED = BAD_REQUEST.because("a message with this client_message_id is already queued")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ClientSettings(Struct, frozen=True, kw_only=True):
    """The arguments of `connect`."""

    url: str
    token: str | TokenFunction
    device_id: str | None
    outbox: str | None
    codec: ClientCodec
    live: bool
    start_offline: bool
    ca: str | None
    timing: Timing
    clock: Clock
    random: Random


def connect(
    url: str,
    token: str | TokenFunction,
    *,
    device_id: str | None = None,
    outbox: str | None = None,
    codec: str = "json",
    live: bool = True,
    start_offline: bool = False,
    ca: str | None = None,
    timing: Timing | None = None,
    clock: Clock = wall_clock,
    random: Random | None = None,
) -> Client:
    """A client for `async with`.

    `outbox` names the file in which unacknowledged messages and cursors survive this process; without one
    they live in memory. `codec` is "json" or "msgpack". `live=False` requests no live entries: the client
    then notices new entries at the next heartbeat. Entering waits for the server's welcome and raises
    CannotConnect or BadToken if none arrives; with `start_offline` it returns at once, and sends wait for a
    connection. `device_id` must be that of the token; by default the server says which it is. `ca` names a
    PEM file with the authorities that a certificate is checked against, instead of the system's.

    `token` may also be a function that gets one from the application's own login: it is awaited before each
    connection, and before a JSON Web Token expires. Then `device_id` is needed.
    """
    settings = ClientSettings(
        url=base_url(url),
        token=token,
        device_id=device_id,
        outbox=outbox,
        codec=CLIENT_CODECS[codec],
        live=live,
        start_offline=start_offline,
        ca=ca,
        timing=timing or Timing(),
        clock=clock,
        random=random or SystemRandom(),
    )
    return Client(settings)


class Client(PeopleApi):
    """One person on one device. Use it as `async with`, on one event loop."""

    api: Api

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._woken = asyncio.Event()
        self.core = ClientCore(
            settings.codec,
            settings.timing,
            settings.random.random,
            durable=settings.outbox is not None,
            wake=self._woken.set,
        )
        self.device_id = settings.device_id
        self._tokens = TokenSource(settings.token, settings.clock)
        self._renewing: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()
        self._http_tasks: set[asyncio.Task[None]] = set()
        self._http_tasks_at_once = asyncio.Semaphore(HTTP_TASKS_AT_ONCE_MAX)
        # Callers that wait for the core's events.
        self._was_entered = False
        self._failure: ClientError | None = Closed(NOT_ENTERED)
        self._sendings: dict[MessageKey, Sending] = {}
        self._all_sent = asyncio.Event()
        self._readers: dict[str, EntryStream] = {}
        self._all_reader: AllEntriesStream | None = None
        self._update_streams: WeakSet[UpdateStream] = WeakSet()  # Python does not close a loop that is left.
        self._read_marks: dict[int, asyncio.Future[None]] = {}
        self._overviews: list[tuple[int, asyncio.Future[None]]] = []
        self._openings: dict[str, list[asyncio.Future[None]]] = {}

    async def __aenter__(self) -> Self:
        if self._was_entered:
            raise self._failure or Closed(ENTERED_TWICE)
        settings = self._settings
        async with AsyncExitStack() as stack:
            self._executor = stack.enter_context(ThreadPoolExecutor(1, "parley-outbox"))
            self._storage = await self._in_thread(open_storage, settings.outbox)
            stack.push_async_callback(self._in_thread, self._storage.close)
            self._http = await stack.enter_async_context(open_http(settings.ca))
            self.api = Api(self._http, settings.url, self._tokens.current or None)
            saved = await self._in_thread(self._storage.load)
            self._was_entered, self._failure = True, None
            self.core.restore(saved)
            for message in saved.outgoing:
                self._sendings[message.key] = Sending(message, self.core, is_saved=True)
            self._loop = ConnectionLoop(
                core=self.core,
                woken=self._woken,
                connect=self._connect,
                storage=self._storage,
                executor=self._executor,
                timing=settings.timing,
                clock=settings.clock,
                chance=settings.random.random,
                dispatch=self._dispatch,
                renews=self._tokens.is_renewable,
            )
            stack.callback(self._stop_renewing)
            self._running = asyncio.create_task(self._run())
            stack.push_async_callback(self._stop_running)
            if not settings.start_offline:
                await self._until_welcome()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._failure is None and self.core.online:
                await self._drain()
            if self._failure is None:
                await self._loop.finish()
        finally:
            self._fail(self._failure or Closed(CLOSED))
            await self._stack.aclose()

    # Sending and reading

    @property
    def user_id(self) -> str:
        """The person's id; empty until the first welcome."""
        return self.core.user_id

    @property
    def is_online(self) -> bool:
        return self.core.online

    @property
    def unsent(self) -> list[Sending]:
        """Every message that is not yet acknowledged, including those of an earlier run from the file."""
        return list(self._sendings.values())

    def chat(self, chat_id: str) -> Chat:
        return Chat(self, chat_id)

    def __aiter__(self) -> AllEntriesStream:
        """Read every chat. See `AllEntriesStream`."""
        self.check_open()
        if self._all_reader is not None:
            self._all_reader.close()
        self._all_reader = AllEntriesStream(self.core, self.check_open)
        self.core.read_all()
        return self._all_reader

    def read(self, chat: ChatModel) -> EntryStream:
        """Read one chat. See `EntryStream`."""
        self.check_open()
        self.stop_reading(chat.chat_id)
        self.core.read(chat)
        reader = self._readers[chat.chat_id] = EntryStream(self.core, chat, self.check_open)
        return reader

    def stop_reading(self, chat_id: str) -> None:
        """End the loop that reads this chat, or take the chat out of the loop over all."""
        reader = self._readers.pop(chat_id, None)
        if reader is not None:
            reader.close()
        elif self._all_reader is not None:
            self._all_reader.leave(chat_id)

    def send(
        self,
        chat_id: str,
        content: str,
        content_type: str = "text/plain",
        display_time: str | None = None,
        client_message_id: str | None = None,
        mentions: Iterable[str] = (),
        reply_to: str | None = None,
        attachments: Iterable[str] = (),
    ) -> Sending:
        """See `Chat.send`."""
        now_ms = self.wall_ms()
        message = OutgoingMessage(
            chat_id=chat_id,
            client_message_id=client_message_id or self._new_id(),
            content=content,
            content_type=content_type,
            display_time=display_time or iso(now_ms),
            created_at_ms=now_ms,
            mentions=tuple(mentions),
            reply_to=reply_to,
            attachments=tuple(attachments),
        )
        return self._queue(message)

    def amend(
        self, chat_id: str, kind: Kind, message_id: str, content: str = "", *, is_on: bool = True
    ) -> Sending:
        """Edit, delete or react to a message: see `Chat.edit`, `Chat.delete`, `Chat.react`."""
        now_ms = self.wall_ms()
        message = OutgoingMessage(
            chat_id=chat_id,
            client_message_id=self._new_id(),
            content=content,
            display_time=iso(now_ms),
            created_at_ms=now_ms,
            kind=kind.value,
            target_id=message_id,
            is_on=is_on,
        )
        return self._queue(message)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._settings.random.getrandbits(128), version=4))

    def _queue(self, message: OutgoingMessage) -> Sending:
        self.check_open()
        if ids.client_key(message.client_message_id) is None:
            raise RequestRefused(NO_UUID)
        if message.key in self.core.outbox:
            raise RequestRefused(STILL_QUEUED)
        self.core.send(message)
        sending = Sending(message, self.core, is_saved=not self._storage.blocking)
        self._sendings[message.key] = sending
        return sending

    async def mark_read(self, chat_id: str, up_to: int | str) -> None:
        """See `Chat.mark_read`."""
        self.check_open()
        number = self.core.mark_read(chat_id, up_to)
        done = self._read_marks[number] = asyncio.get_running_loop().create_future()
        try:
            await done
        finally:
            del self._read_marks[number]
            self.core.read_marks.drop(number)

    async def overview(self) -> list[OverviewChat]:
        """Every chat of the person: its head, this device's cursor, what is unread. Always a new request."""
        self.check_open()
        complete = asyncio.get_running_loop().create_future()
        self._overviews.append((self.core.ask_overview(), complete))
        await complete
        return list(self.core.rows.values())

    async def chats(self, *, newest: int | None = None) -> list[OverviewChat]:
        """Every chat of the person, with its title, its last entry and the peer of a direct chat.

        `newest`: only so many, those with the latest entries, the latest first.
        """
        return await self.api.chats(newest=newest)

    async def search(self, text: str, *, before: str | None = None, limit: int = SEARCH_HITS_DEFAULT) -> Hits:
        """The newest messages of all chats with these words. `before`: the `next` of the page before."""
        params = {"q": text, "limit": str(limit)} | ({} if before is None else {"before": before})
        return await self.api.call("GET", "search", Hits, params=params)

    async def create_chat(self, member_ids: list[str], title: str | None = None) -> Chat:
        """A group with these people, owned by this person. Who does not let them add them is invited."""
        return self.chat((await self.api.create_chat(ChatType.GROUP, member_ids, title)).chat_id)

    async def direct_chat(self, user_id: str) -> Chat:
        """The direct chat with a person; there is only one."""
        return self.chat((await self.api.create_chat(ChatType.DIRECT, [user_id], None)).chat_id)

    async def update(
        self,
        *,
        display_name: str | None = None,
        about: str | None = None,
        last_seen_privacy: Privacy | None = None,
        send_read_receipts: bool | None = None,
        who_may_add: Privacy | None = None,
        do_not_disturb: QuietHours | UnsetType | None = UNSET,
    ) -> Me:
        """Change these fields of the person's own profile and settings; `do_not_disturb=None` ends it."""
        wanted: dict[str, object] = {
            "display_name": display_name,
            "about": about,
            "last_seen_privacy": last_seen_privacy,
            "send_read_receipts": send_read_receipts,
            "who_may_add": who_may_add,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        if do_not_disturb is not UNSET:
            body["do_not_disturb"] = do_not_disturb
        me = await self.api.call("PATCH", "me", Me, body)
        if send_read_receipts is not None:
            self.core.reload_open_chats()  # The person may now see more or fewer receipts.
        return me

    # Live state

    def updates(self) -> UpdateStream:
        """A loop over all changes besides the entries of the logs. See `Update`."""
        return self.stream_updates(lambda _: True)

    def stream_updates(self, concerns: Callable[[Update], bool]) -> UpdateStream:
        """The same, for the updates for which `concerns` is true."""
        self.check_open()
        updates = UpdateStream(concerns, self.check_open)
        self._update_streams.add(updates)
        return updates

    async def open_chat(self, chat: ChatModel) -> None:
        """See `Chat.open`."""
        self.check_open()
        self._dispatch(self.core.events())  # This caller must not get the outcome of an earlier call.
        self.core.open(chat)
        opened = asyncio.get_running_loop().create_future()
        self._openings.setdefault(chat.chat_id, []).append(opened)
        await opened

    def look(self, *, looking: bool) -> None:
        """Tell the server whether somebody looks at this device. After two minutes of not, it does not keep
        the person's other devices from notifying.
        """
        self.check_open()
        self.core.look(looking=looking)

    def watch_presence(self, user_ids: Iterable[str]) -> None:
        """Subscribe to these people's presence; replaces the last call. Members of open chats are added.

        The limit is 500 people in all, these first. `presence` then answers at once, and `updates` yields the
        changes.
        """
        self.check_open()
        self.core.watch_presence(user_ids)

    async def presence(self, user_ids: Iterable[str]) -> list[PresenceView]:
        """Whether each of these people is online, and their last seen. Answers are cached for 30 seconds."""
        self.check_open()
        watch = self.core.presence
        known = {user_id: watch.recall(user_id, loop_ms()) for user_id in user_ids}
        unknown = [user_id for user_id, view in known.items() if view is None]
        if unknown:
            queried = await self.api.presence(unknown)
            watch.note_queried(queried, loop_ms())
            known |= {view.user_id: view for view in queried}
        return [view for view in known.values() if view is not None]

    def wall_ms(self) -> int:
        """The time of day."""
        return self._settings.clock()

    def check_open(self) -> None:
        """Raise why this client has ended, if it has."""
        if self._failure is not None:
            raise self._failure

    # The core's events

    def _dispatch(self, events: list[ClientEvent]) -> None:
        """Pass each event to the caller that waits for it."""
        for event in events:
            match event:
                case Update():
                    if event.what is What.LOG and event.chat_id is not None:
                        log.error(DIFFERS, self.core.chat(event.chat_id).log_difference)
                    for updates in self._update_streams:
                        updates.put(event)
                case EntriesReady():
                    if event.chat_id in self._readers:
                        self._readers[event.chat_id].notify()
                    elif self._all_reader is not None:
                        self._all_reader.notify(event.chat_id)
                case MessageStored():
                    self._settle(event.key, event.ack)
                case MessageRefused():
                    (chat_id, message_id), error = event.key, RequestRefused(event.refusal)
                    log.warning("message %s to %s was refused: %s", message_id, chat_id, error)
                    self._settle(event.key, error)
                case MessagesSaved():
                    for key in event.keys:
                        if key in self._sendings:
                            self._sendings[key].note_saved()
                case ReadMarkDone():
                    _answer(self._read_marks.get(event.number), event.refusal)
                case OverviewComplete():
                    for wanted_round, complete in self._overviews:
                        if wanted_round <= event.round:
                            _answer(complete, None)
                    self._overviews = [waiting for waiting in self._overviews if not waiting[1].done()]
                case ChatOpened():
                    for opened in self._openings.pop(event.chat_id, []):
                        _answer(opened, event.refusal)
                case CheckMessage():
                    self._start_http(self._check_message(event.message))
                case LoadChat():
                    self._start_http(self._load_chat(self.core.chat(event.chat_id)))
                case RequestFailed():
                    refusal = event.refusal
                    log.warning("the server refused a request: %s: %s", refusal.code, refusal.reason)

    def _settle(self, key: MessageKey, outcome: Ack | RequestRefused) -> None:
        sending = self._sendings.pop(key, None)
        if sending is not None:
            sending.settle(outcome)
        if not self._sendings:
            self._all_sent.set()

    def _fail(self, failure: ClientError) -> None:
        """End this client: every waiting call raises the failure."""
        self._failure = failure
        for sending in self._sendings.values():
            sending.settle(failure)
        openings = [opened for waiting in self._openings.values() for opened in waiting]
        overviews = [complete for _, complete in self._overviews]
        for waiting in [*self._read_marks.values(), *overviews, *openings]:
            if not waiting.done():
                waiting.set_exception(failure)
        for reader in self._readers.values():
            reader.notify()
        for updates in self._update_streams:
            updates.notify()
        if self._all_reader is not None:
            self._all_reader.notify()
        self._all_sent.set()

    # HTTP requests for the core

    def _start_http(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._http_tasks.add(task)
        task.add_done_callback(self._http_tasks.discard)

    async def _check_message(self, message: OutgoingMessage) -> None:
        """Look for an old message before it is resent: it may be stored, and its id expired."""
        try:
            async with self._http_tasks_at_once:
                ack = await self.api.find_stored(message)
        except ClientError as error:
            log.info("cannot find out whether an old message is stored, trying again later: %s", error)
            self.core.check_failed(message.key, loop_ms())
            return
        if ack is None:
            self.core.message_not_stored(message.key, self.wall_ms())
        else:
            self.core.message_stored(message.key, ack, loop_ms())

    async def _load_chat(self, chat: ChatModel) -> None:
        try:
            async with self._http_tasks_at_once:
                snapshot = await self.api.snapshot(chat.chat_id)
        except ClientError as error:
            refusal = error.refusal if isinstance(error, RequestRefused) else None
            log.info("cannot load chat %s: %s", chat.chat_id, error)
            self.core.load_failed(chat, refusal, loop_ms())
        else:
            self.core.chat_loaded(chat, snapshot)

    # Lifecycle

    async def _run(self) -> None:
        try:
            await self._loop.run(retry_first=self._settings.start_offline)
        except* ClientError as group:
            self._fail(_first_error(group))
        except* Exception as group:
            log.exception("the client failed")
            self._fail(Closed(f"this client failed: {group.exceptions[0]!r}"))

    async def _until_welcome(self) -> None:
        welcomed = asyncio.create_task(self._loop.welcomed.wait())
        await asyncio.wait([welcomed, self._running], return_when=asyncio.FIRST_COMPLETED)
        welcomed.cancel()
        self.check_open()

    async def _drain(self) -> None:
        """Wait a moment for the acks of messages in flight."""
        self._all_sent.clear()
        if self._sendings:
            try:
                async with asyncio.timeout(self._settings.timing.drain_ms / 1000):
                    await self._all_sent.wait()
            except TimeoutError:
                log.warning("%d messages are not yet acknowledged", len(self._sendings))

    async def _stop_running(self) -> None:
        tasks = [self._running, *self._http_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _connect(self) -> tuple[WebSocketTransport, Welcome]:
        """Connect and check that the outbox belongs to this person."""
        settings = self._settings
        self._stop_renewing()
        self.api.token = token = await self._tokens.fresh()
        if self.device_id is None:
            try:
                self.device_id = await self.api.device_id()
            except RequestRefused as error:
                if error.temporary:
                    raise CannotConnect(error.reason) from error
                raise
        hello = Hello(id=0, token=token, device_id=self.device_id, live=settings.live)
        transport, welcome = await connect_transport(
            self._http, settings.url, settings.codec, hello, settings.timing.answer_ms
        )
        try:
            await self._in_thread(self._storage.claim, welcome.user_id, welcome.device_id)
        except BaseException:
            await transport.close()
            raise
        if self._tokens.is_renewable:
            self._renewing = asyncio.create_task(self._renew(transport))
        return transport, welcome

    async def _renew(self, transport: WebSocketTransport) -> None:
        """Send a new token each time before the last one expires. A refused one leaves the last as it is."""
        while (wait_seconds := self._tokens.renewal_seconds()) is not None:
            await asyncio.sleep(wait_seconds)
            try:
                self.api.token = token = await self._tokens.fresh()
            except CannotConnect as error:
                log.info("no new token yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not await transport.send([Refresh(token=token)]):
                return

    def _stop_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def _in_thread(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))


def _answer(waiting: asyncio.Future[None] | None, refusal: Refusal | None) -> None:
    if waiting is None or waiting.done():
        return
    if refusal is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(RequestRefused(refusal))


def _first_error(group: ExceptionGroup[ClientError]) -> ClientError:
    """The error behind a failed connection loop."""
    first = group.exceptions[0]
    return _first_error(first) if isinstance(first, ExceptionGroup) else first
