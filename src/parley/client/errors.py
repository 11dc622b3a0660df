"""The errors of the SDK, as one tree. Every message reason what to do next.

ParleyError
└── ClientError
    ├── CannotConnect       the address does not answer, or is not a Parley server
    ├── BadToken            the token is not valid, or no longer valid: log in again
    ├── Closed              this client is closed, or the server forbids it to reconnect
    ├── RequestRefused      the server refused one request: code, reason, temporary
    ├── ReadElsewhere       two loops would share one cursor
    ├── OutboxFull          too much is waiting to be sent
    └── OutboxUnusable      the outbox file is in use, belongs to another device, or cannot be written
"""

from __future__ import annotations

from parley.errors import ParleyError, Refused


class ClientError(ParleyError):
    """The root of everything this SDK raises on purpose."""


class CannotConnect(ClientError):
    """The address does not answer, or is not a Parley server."""


class BadToken(ClientError):
    """The server does not accept the token; `login` returns a new one. Queued messages stay queued."""


class Closed(ClientError):
    """This client has ended. `code` is the close code if the server ended it."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class RequestRefused(Refused, ClientError):
    """The server refused one request. `temporary` reason whether the same request may work later."""

    @property
    def code(self) -> str:
        return self.refusal.code

    @property
    def reason(self) -> str:
        return self.refusal.reason

    @property
    def temporary(self) -> bool:
        return self.refusal.temporary


class ReadElsewhere(ClientError):
    """Another loop reads this chat, or all chats; a device has one cursor per chat."""


class OutboxFull(ClientError):
    """Too much is waiting to be sent; wait for acknowledgements."""


class OutboxUnusable(ClientError):
    """The outbox file is in use, belongs to another device, or cannot be written."""

    @classmethod
    def because(cls, path: str, reason: object) -> OutboxUnusable:
        return cls(f"the outbox {path} cannot be used: {reason}")
