"""The door of every message: `sending.send(draft)`, whoever sends it and whatever it asks for."""

from __future__ import annotations

from parley.errors import BAD_REQUEST, Refused
from parley.model import Appended, Draft
from parley.sending.answers import Done
from parley.sending.attaching import Attaching
from parley.sending.message_actions import MessageActions
from parley.sending.sender import Sender
from parley.wire.frames import RequestId

NO_FILES = BAD_REQUEST.because("this server takes no files: its operator has named no attachments.target")


class SendService:
    """`sender` appends, `actions` does what follows from a draft about another message, `attaching` claims
    the files of a draft; None on a server that takes none.
    """

    def __init__(self, sender: Sender, actions: MessageActions, attaching: Attaching | None = None) -> None:
        self._sender = sender
        self._actions = actions
        self._attaching = attaching

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        """Take a plain draft, for a caller that does not wait; `done` hears its outcome, once and in time."""
        assert draft.is_plain
        self._sender.submit(draft, request_id, done)

    async def send(self, draft: Draft) -> Appended:
        """Append a draft, and do what follows from it. Refused with the refusal."""
        if not draft.attachments:
            return await self._append(draft)
        if self._attaching is None:
            raise Refused(NO_FILES)
        return await self._attaching.send(draft, self._append)

    async def _append(self, draft: Draft) -> Appended:
        appends = self._actions if draft.is_about_another else self._sender
        return await appends.send(draft)
