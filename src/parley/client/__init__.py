"""The Python SDK: every duty of a client, so that an application only sends and reads.

    token = await login("http://127.0.0.1:8080", "ada", "a long password")
    async with connect("http://127.0.0.1:8080", token, outbox="ada.db") as me:
        chat = me.chat(chat_id)
        ack = await chat.send("hi")
        async for entry in chat:
            print(entry.sequence, entry.content)

What it promises an application, and what it asks of it, is in `docs/sdk-python.md`.
"""

from parley.client.api import login, register
from parley.client.chat import Chat
from parley.client.client import Client, connect
from parley.client.errors import (
    BadToken,
    CannotConnect,
    ClientError,
    Closed,
    OutboxFull,
    OutboxUnusable,
    ReadElsewhere,
    RequestRefused,
)
from parley.client.sending import Sending
from parley.client.timing import Timing
from parley.wire.frames import Ack, Entry, OverviewChat

__all__ = [
    "Ack",
    "BadToken",
    "CannotConnect",
    "Chat",
    "Client",
    "ClientError",
    "Closed",
    "Entry",
    "OutboxFull",
    "OutboxUnusable",
    "OverviewChat",
    "ReadElsewhere",
    "RequestRefused",
    "Sending",
    "Timing",
    "connect",
    "login",
    "register",
]
