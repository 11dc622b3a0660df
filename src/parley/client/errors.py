"""What can go wrong for a client, as one tree. Every message says what to do next.

ParleyError
└── ClientError
    ├── CannotConnect       nobody answers there, or it is no Parley server
    ├── BadToken            the token is not valid, or not valid any more: log in again
    ├── Closed              this client is closed, or the server said not to come back
    ├── RequestRefused      the server refused one request: code, reason, temporary
    ├── ReadElsewhere       two loops would share one cursor
    ├── OutboxFull          too much is waiting to be sent
    └── OutboxUnusable      the outbox file is in use, belongs to somebody else or cannot be written
"""

from __future__ import annotations

from parley.errors import ParleyError, Refusal, Refused


class ClientError(ParleyError):
    """The root of everything this SDK raises on purpose."""


class CannotConnect(ClientError):
    """Nobody answers at the address, or what answers is no Parley server."""


class BadToken(ClientError):
    """The server does not take the token; `login` makes a new one. What was queued stays queued."""


class Closed(ClientError):
    """This client does no more work. `code` is the close code when the server ended it."""

    def __init__(self, says: str, code: int | None = None) -> None:
        super().__init__(says)
        self.code = code


class RequestRefused(Refused, ClientError):
    """The server refused one request. `temporary` says whether the same request may work later."""

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
    """This chat, or all chats, are being read by another loop; a device has one cursor per chat."""


class OutboxFull(ClientError):
    """Too much is waiting to be sent; wait for acknowledgements."""


class OutboxUnusable(ClientError):
    """The outbox file is in use, belongs to another person or device, or cannot be written."""

    @classmethod
    def because(cls, path: str, says: object) -> OutboxUnusable:
        return cls(f"the outbox {path} cannot be used: {says}")


def refused(code: str, reason: str, temporary: bool, status: int = 400) -> RequestRefused:
    return RequestRefused(Refusal(code, reason, temporary, status=status))
