"""The Python SDK. It does every duty of a client, so that an application only sends and reads.

    token = await login("http://127.0.0.1:8080", "ada", "a long password")
    async with connect("http://127.0.0.1:8080", token, outbox="ada.db") as me:
        chat = me.chat(chat_id)
        ack = await chat.send("hi")
        async for entry in chat:
            print(entry.sequence, entry.content)

`docs/sdk-python.md` says what it promises an application, and what it requires.
"""

from parley.client.api import login, register, reset_password, server_info
from parley.client.chat import Chat, MessageStatus, Sending
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
from parley.client.events import Update, What
from parley.client.log_proof import LogDifference
from parley.client.members import Member, Members
from parley.client.timing import Timing
from parley.client.tokens import TokenFunction
from parley.client.window import LogWindow
from parley.model import Privacy, ReadReceipts
from parley.wire.bodies import ChatInfo, Device, InvitationInfo, Me, Profile, Receipts, Related
from parley.wire.frames import Ack, Entry, OverviewChat, PresenceView
from parley.wire.search_bodies import ChatHits, Hits, SearchHit

__all__ = [
    "Ack",
    "BadToken",
    "CannotConnect",
    "Chat",
    "ChatHits",
    "ChatInfo",
    "Client",
    "ClientError",
    "Closed",
    "Device",
    "Entry",
    "Hits",
    "InvitationInfo",
    "LogDifference",
    "LogWindow",
    "Me",
    "Member",
    "Members",
    "MessageStatus",
    "OutboxFull",
    "OutboxUnusable",
    "OverviewChat",
    "PresenceView",
    "Privacy",
    "Profile",
    "ReadElsewhere",
    "ReadReceipts",
    "Receipts",
    "Related",
    "RequestRefused",
    "SearchHit",
    "Sending",
    "Timing",
    "TokenFunction",
    "Update",
    "What",
    "connect",
    "login",
    "register",
    "reset_password",
    "server_info",
]
