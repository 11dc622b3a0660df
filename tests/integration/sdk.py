"""People with the SDK on a real server, and the history of what they sent, were told and saw."""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from parley.client import Client, RequestRefused, Timing, connect, login, register
from tests.harness.events import Acknowledged, EntrySeen, Resumed, SendRejected, Sent
from tests.harness.history import History, check
from tests.harness.recording import read_store
from tests.harness.server import ServerProcess

PASSWORD = "correct horse battery"
QUICK = Timing(ack_ms=300, backoff_base_ms=20, backoff_max_ms=200, cursor_flush_ms=20, answer_ms=2_000)


class Account(Struct):
    """Who somebody is, and with what he comes in."""

    user_id: str
    token: str
    device_id: str


async def newcomer(server: ServerProcess, device_id: str = "device") -> Account:
    username = f"u{uuid.uuid4().hex[:12]}"
    user_id = await register(server.url, username, PASSWORD)
    return Account(user_id, await login(server.url, username, PASSWORD, device_id), device_id)


def client(
    url: str,
    account: Account,
    *,
    outbox: Path | None = None,
    codec: str = "json",
    start_offline: bool = False,
    seed: int = 0,
) -> Client:
    return connect(
        url,
        account.token,
        device_id=account.device_id,
        outbox=None if outbox is None else str(outbox),
        codec=codec,
        start_offline=start_offline,
        timing=QUICK,
        random=Random(f"{account.user_id} {seed}"),
    )


async def new_group(server: ServerProcess, accounts: Sequence[Account]) -> str:
    async with client(server.url, accounts[0]) as owner:
        return (await owner.create_chat([account.user_id for account in accounts[1:]], "group")).chat_id


class Recorder:
    """What SDK users do in one chat, told to a history."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.history = History()

    async def send(self, me: Client, account: Account, contents: Sequence[str]) -> None:
        """Pipeline all of them, and wait for what becomes of each."""
        sendings = []
        for content in contents:
            sending = me.chat(self.chat_id).send(content)
            sendings.append(sending)
            self.history.add(
                Sent(
                    chat_id=self.chat_id,
                    sender_id=account.user_id,
                    device_id=account.device_id,
                    client_message_id=sending.client_message_id,
                    content=content,
                )
            )
            await asyncio.sleep(0)
        for sending in sendings:
            try:
                ack = await sending
            except RequestRefused as error:
                self.history.add(
                    SendRejected(
                        chat_id=self.chat_id,
                        sender_id=account.user_id,
                        client_message_id=sending.client_message_id,
                        code=error.code,
                        temporary=error.temporary,
                    )
                )
                continue
            self.history.add(
                Acknowledged(
                    chat_id=self.chat_id,
                    sender_id=account.user_id,
                    client_message_id=ack.client_message_id,
                    message_id=ack.message_id,
                    sequence=ack.sequence,
                    epoch=ack.epoch,
                    deduplicated=ack.deduplicated,
                )
            )

    async def read(self, me: Client, account: Account, until: int, after: int = 0) -> None:
        """Read on until a position."""
        reader = f"{account.user_id} {account.device_id}"
        self.history.add(Resumed(chat_id=self.chat_id, reader=reader, after=after))
        async for entry in me.chat(self.chat_id):
            self.history.add(
                EntrySeen(
                    chat_id=self.chat_id,
                    reader=reader,
                    sequence=entry.sequence,
                    message_id=entry.message_id,
                    client_message_id=entry.client_message_id,
                    content=entry.content,
                    epoch=entry.epoch,
                )
            )
            if entry.sequence >= until:
                break
        me.chat(self.chat_id).done()

    def seen_by(self, account: Account) -> list[int]:
        reader = f"{account.user_id} {account.device_id}"
        seen = [event for event in self.history.events if isinstance(event, EntrySeen)]
        return [event.sequence for event in seen if event.reader == reader]

    def breaches(self, server: ServerProcess) -> list[str]:
        """What of the promise was broken, in the light of what the store holds."""
        read_store(self.history, server.sqlite_path)
        return [str(breach) for breach in check(self.history)]
