"""Whether an upload may go on: its address ends with the right of the one who asked for it."""

from __future__ import annotations

from typing import Protocol

from parley.core.attachments import Attachment
from parley.errors import NOT_FOUND, Refused
from parley.model import AccountState
from parley.records.accounts import Accounts
from parley.store.ports import Directory

WRONG_ADDRESS = NOT_FOUND.because("this address was never valid, or its time is over; ask for a new one")


class SessionCheck(Protocol):
    """Who knows which sessions and tokens are good."""

    async def is_valid(self, user_id: str, session_id: str) -> bool:
        """Whether what this session stands for could be used now."""
        ...


class UploadRights:
    def __init__(self, accounts: Accounts, directory: Directory, sessions: SessionCheck) -> None:
        self._accounts = accounts
        self._directory = directory
        self._sessions = sessions

    async def check(self, file: Attachment, session_id: str) -> None:
        """Refused unless its owner is active and a member, and still has the session that asked for the
        address. Addresses of earlier versions name none.
        """
        user = await self._accounts.user(file.user_id)
        may_go_on = (
            user is not None
            and user.state is AccountState.ACTIVE
            and (not session_id or await self._sessions.is_valid(file.user_id, session_id))
            and await self._directory.role(file.chat_id, file.user_id) is not None
        )
        if not may_go_on:
            raise Refused(WRONG_ADDRESS)
