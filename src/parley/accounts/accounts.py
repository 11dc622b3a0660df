"""People prove who they are; devices keep sessions. Secrets are hashed here and logged nowhere."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Protocol

import argon2
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from parley import ids
from parley.accounts.hash_queue import HashQueue
from parley.bus.ports import Bus
from parley.clock import MS_PER_DAY, MS_PER_SECOND, Clock, iso
from parley.core.passwords import weakness
from parley.core.shown_text import shown_text
from parley.core.usernames import check_new_username
from parley.errors import (
    ACCOUNT_DISABLED,
    BAD_REQUEST,
    NO_SUCH_USER,
    NOT_FOUND,
    UNAUTHENTICATED,
    USERNAME_TAKEN,
    WRONG_PASSWORD,
    Refused,
)
from parley.model import AccountState, Privacy, QuietHours, Session, User
from parley.records.accounts import Accounts
from parley.records.sessions import Sessions
from parley.store.ports import Cursors
from parley.wire.limits import (
    DEVICE_ID_CHARS_MAX,
    DEVICE_NAME_CHARS_MAX,
    PASSWORD_CHARS_MAX,
    SESSION_DAYS,
    USER_SESSIONS_MAX,
    USERNAME_CHARS_MAX,
)

TOKEN_PREFIX = "prl_"
TOKEN_BYTES = 32
ORIGIN_BYTES = 16
USED_EVERY_MS = 60 * 60 * 1_000
"""How exact "last used" is. Each note is a write of its own on DynamoDB, for everybody who is connected."""

PROLONGED_MS = SESSION_DAYS * MS_PER_DAY
"""How long after its last use a session ends, unless it ends at a fixed time."""

BAD_EXPIRY = BAD_REQUEST.because(f"expires_in_seconds is more than 0, and less than {SESSION_DAYS} days")
NO_DISPLAY_NAME = BAD_REQUEST.because("display_name has no character that shows")
BAD_DEVICE = BAD_REQUEST.because(f"device_id is 1 to {DEVICE_ID_CHARS_MAX} printable characters")
BAD_DEVICE_NAME = BAD_REQUEST.because(f"device_name has at most {DEVICE_NAME_CHARS_MAX} characters")

HASHER = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class DeviceSummary(Struct, frozen=True):
    """One device of a person, and how many sessions it has."""

    device_id: str
    device_name: str
    last_used_at_ms: int
    sessions: int


class AccountEvents(Protocol):
    """Told of changes of accounts: each happens inside, so that what is noted before survives a crash."""

    def created(self, user_id: str, at_ms: int) -> AbstractAsyncContextManager[None]:
        """An account is added inside."""
        ...

    def changed(self, user_id: str) -> AbstractAsyncContextManager[None]:
        """An account is disabled, enabled or deleted inside."""
        ...


class NoAccountEvents:
    """Where there is nobody to tell."""

    def created(self, user_id: str, at_ms: int) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def changed(self, user_id: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()


Claim = Callable[[str], AbstractAsyncContextManager[None]]


def no_claim(user_id: str) -> AbstractAsyncContextManager[None]:
    """Nothing else belongs to the account."""
    return nullcontext()


class AccountManager:
    """Accounts and sessions, with the slow hashing on threads of its own.

    `changed` is called with the id of a user who changed their profile or settings. `refuses_common`: whether
    passwords that attackers try first are refused. `address` is where a request comes from, where known.
    """

    def __init__(
        self,
        *,
        accounts: Accounts,
        sessions: Sessions,
        cursors: Cursors,
        bus: Bus,
        clock: Clock,
        make_ids: ids.Ids,
        random_bytes: Callable[[int], bytes],
        password_chars_min: int = 1,
        changed: Callable[[str], None] = lambda _: None,
        refuses_common: bool = False,
        events: AccountEvents = NoAccountEvents(),  # noqa: B008 - it has no state
    ) -> None:
        self.events = events
        self._accounts = accounts
        self._sessions = sessions
        self._cursors = cursors
        self._bus = bus
        self._clock = clock
        self._ids = make_ids
        self._random_bytes = random_bytes
        self._password_chars_min = password_chars_min
        self._refuses_common = refuses_common
        self._hashes = HashQueue()
        self._updating = asyncio.Lock()
        self._decoy = ""
        self._changed = changed

    async def register(
        self,
        username: str,
        password: str,
        is_operator: bool = False,
        address: str = "",
        is_bot: bool = False,
        claim: Claim = no_claim,
        by_operator: bool = False,
    ) -> User:
        """`claim` is entered with the id of the account just before it is added, which happens inside.

        `by_operator`: the name was chosen by one, so it may be reserved.
        """
        check_username(username, by_operator=by_operator)
        self._check_password(password, username)
        if await self._accounts.user_by_name(username) is not None:
            raise Refused(USERNAME_TAKEN)
        hashed = await self._hash(password, address)
        now_ms = self._clock()
        user_id = self._ids.next(ids.USER, now_ms)
        user = User(user_id, username, username, "", is_operator, iso(now_ms), is_bot=is_bot)
        async with claim(user_id), self.events.created(user_id, now_ms):
            if not await self._accounts.add_user(user, hashed):
                raise Refused(USERNAME_TAKEN)
        return user

    async def log_in(
        self, username: str, password: str, device_id: str, device_name: str, address: str = ""
    ) -> tuple[str, Session]:
        token = self._new_token()
        session = await self.log_in_with(
            username, password, device_id, device_name, lambda _: hash_token(token), address
        )
        return token, session

    async def log_in_with(
        self,
        username: str,
        password: str,
        device_id: str,
        device_name: str,
        hash_of: Callable[[str], bytes],
        address: str = "",
        *,
        expires_in_seconds: int | None = None,
        admit: Callable[[User], None] = lambda _: None,
    ) -> Session:
        """A new session, stored under what `hash_of` makes of its id. `admit` may refuse the person."""
        check_device(device_id, device_name)
        user, verified = await self._verify(username, password, address)
        if user.state is not AccountState.ACTIVE:  # told to those only who know the password
            raise Refused(ACCOUNT_DISABLED)
        admit(user)
        session = await self._open(user.user_id, device_id, device_name, address, expires_in_seconds, hash_of)
        now = await self._accounts.user_by_name(username)
        if now is None or now[1] != verified:  # it was changed meanwhile, and the other sessions ended
            await self.end_sessions(user.user_id, [session.session_id])
            raise Refused(WRONG_PASSWORD)
        return session

    async def open_session(
        self,
        user_id: str,
        device_id: str,
        device_name: str,
        address: str = "",
        expires_in_seconds: int | None = None,
    ) -> tuple[str, Session]:
        """A new token and its session; the store keeps the token's hash alone.

        A person with too many sessions loses the one that was used least recently. `expires_in_seconds`: it
        ends then, however often it is used.
        """
        token = self._new_token()
        session = await self._open(
            user_id, device_id, device_name, address, expires_in_seconds, lambda _: hash_token(token)
        )
        return token, session

    def _new_token(self) -> str:
        return TOKEN_PREFIX + self._random_bytes(TOKEN_BYTES).hex()

    async def _open(
        self,
        user_id: str,
        device_id: str,
        device_name: str,
        address: str,
        expires_in_seconds: int | None,
        hash_of: Callable[[str], bytes],
    ) -> Session:
        fixed_ms = expires_in_seconds * MS_PER_SECOND if expires_in_seconds is not None else None
        if fixed_ms is not None and not 0 < fixed_ms < PROLONGED_MS:
            raise Refused(BAD_EXPIRY)
        now_ms = self._clock()
        session = Session(
            session_id=self._ids.next(ids.SESSION, now_ms),
            user_id=user_id,
            device_id=device_id,
            device_name=shown_text(device_name),
            created_at_ms=now_ms,
            last_used_at_ms=now_ms,
            expires_at_ms=now_ms + (PROLONGED_MS if fixed_ms is None else fixed_ms),
            origin=origin_of(user_id, address),
        )
        await self._sessions.add(session, hash_of(session.session_id))
        # Read after it is durable: disabling the account ends the sessions that are stored by then.
        user = await self._accounts.user(user_id)
        if user is None or user.state is not AccountState.ACTIVE:
            await self.end_sessions(user_id, [session.session_id])
            raise Refused(ACCOUNT_DISABLED)
        sessions = await self._sessions.of(user_id)
        others = [one.session_id for one in sessions if one.session_id != session.session_id]
        await self.end_sessions(user_id, others[USER_SESSIONS_MAX - 1 :])
        return session

    async def is_known_address(self, username: str, address: str) -> bool:
        """Whether this account has a session that was opened from this address."""
        found = await self._accounts.user_by_name(username) if len(username) <= USERNAME_CHARS_MAX else None
        if found is None:
            return False
        user_id = found[0].user_id
        origin = origin_of(user_id, address)
        return any(session.origin == origin for session in await self.sessions(user_id)) and bool(origin)

    async def authenticate(self, token: str, *, is_recheck: bool = False) -> Session:
        """The session of a token; Refused when there is none or it has run out.

        `is_recheck`: it was authenticated before on this connection.
        """
        return await self.authenticate_row(hash_token(token), is_recheck=is_recheck)

    async def authenticate_row(self, token_hash: bytes, *, is_recheck: bool = False) -> Session:
        """The same by what its row is stored under."""
        session = await self._sessions.by_token(token_hash, is_recheck=is_recheck)
        now_ms = self._clock()
        if session is None or session.expires_at_ms <= now_ms:
            raise Refused(UNAUTHENTICATED)
        if now_ms - session.last_used_at_ms >= USED_EVERY_MS and is_prolonged(session):
            self._sessions.note_used(token_hash, now_ms)
        return session

    async def user(self, user_id: str) -> User:
        user = await self._accounts.user(user_id)
        if user is None:
            raise Refused(NO_SUCH_USER)
        return user

    async def update(
        self,
        user_id: str,
        do_not_disturb: QuietHours | UnsetType | None = UNSET,
        display_name: str | None = None,
        about: str | None = None,
        **wanted: bool | Privacy | None,
    ) -> User:
        """Change the fields that are given of profile and settings. Privacy settings count from then on."""
        texts = {
            "display_name": None if display_name is None else check_display_name(display_name),
            "about": None if about is None else shown_text(about),
        }
        async with self._updating:
            user = await self.user(user_id)
            changes = {**wanted, **texts}
            user = replace(user, **{name: value for name, value in changes.items() if value is not None})
            if do_not_disturb is not UNSET:
                user = replace(user, do_not_disturb=do_not_disturb)
            await self._accounts.update_user(user)
        self._changed(user_id)
        return user

    async def change_password(self, session: Session, old: str, new: str, address: str = "") -> None:
        """End the other sessions: they may belong to a thief of the old password."""
        username = (await self.user(session.user_id)).username
        self._check_password(new, username)
        await self._verify(username, old, address)
        await self.set_password(session.user_id, new, address, but=session.session_id)

    async def set_password(self, user_id: str, new: str, address: str = "", but: str = "") -> None:
        """Whatever the password was; ends all sessions but one."""
        hashed = await self.hashed(new, (await self.user(user_id)).username, address)
        await self.store_password(user_id, hashed, but)

    async def hashed(self, password: str, username: str, address: str = "") -> str:
        """The hash of a password that this person may have."""
        self._check_password(password, username)
        return await self._hash(password, address)

    async def store_password(self, user_id: str, hashed: str, but: str = "") -> None:
        """Ends all sessions but one."""
        async with self._updating:
            await self._accounts.update_user(await self.user(user_id), hashed)
        await self.end_all_sessions(user_id, but)

    async def prove(self, user_id: str, password: str, address: str = "") -> None:
        """Refused unless this is the person's password. Who has none proves nothing: their token did."""
        user = await self.user(user_id)
        found = await self._accounts.user_by_name(user.username)
        if found is not None and not found[1]:
            return
        await self._verify(user.username, password, address)

    async def sessions(self, user_id: str) -> list[Session]:
        now_ms = self._clock()
        return [s for s in await self._sessions.of(user_id) if s.expires_at_ms > now_ms]

    async def revoke(self, user_id: str, session_id: str) -> None:
        """End a session; its sockets close at once. With its last session a device is forgotten."""
        sessions = await self._sessions.of(user_id)
        if not await self.end_sessions(user_id, [session_id]):
            raise Refused(NOT_FOUND.because("there is no such session"))
        left = {session.device_id for session in sessions if session.session_id != session_id}
        for session in sessions:
            if session.session_id == session_id and session.device_id not in left:
                await self._forget_device(user_id, session.device_id)

    async def sign_out(self, user_id: str, session_id: str) -> None:
        """As `revoke`; it is no error if the session is over already."""
        with suppress(Refused):
            await self.revoke(user_id, session_id)

    async def devices(self, user_id: str) -> list[DeviceSummary]:
        """A person's devices, the last used first; each with the name it gave last."""
        found: dict[str, DeviceSummary] = {}
        for session in await self.sessions(user_id):  # the last used first
            known = found.get(session.device_id)
            found[session.device_id] = (
                DeviceSummary(session.device_id, session.device_name, session.last_used_at_ms, 1)
                if known is None
                else replace(known, sessions=known.sessions + 1)
            )
        return list(found.values())

    async def remove_device(self, user_id: str, device_id: str) -> None:
        """End every session of a device, with their sockets, and forget how far it was."""
        sessions = [s for s in await self._sessions.of(user_id) if s.device_id == device_id]
        if not sessions:
            raise Refused(NOT_FOUND.because("there is no such device"))
        await self.end_sessions(user_id, [session.session_id for session in sessions])
        await self._forget_device(user_id, device_id)

    async def _forget_device(self, user_id: str, device_id: str) -> None:
        """What its sockets said last is written before, lest it come back after."""
        await self._cursors.flush(user_id)
        await self._cursors.forget_device(user_id, device_id)

    async def end_all_sessions(self, user_id: str, but: str = "") -> None:
        """Also those that have expired. Unless one is to stay, the sockets of other tokens close, too."""
        found = [session.session_id for session in await self._sessions.of(user_id)]
        await self.end_sessions(user_id, [session_id for session_id in found if session_id != but])
        if not but:
            self._bus.publish_sessions_ended([user_id])

    async def end_sessions(self, user_id: str, session_ids: list[str]) -> list[str]:
        """Those that existed. Their sockets close on every node."""
        ended = await self._sessions.end(user_id, session_ids) if session_ids else []
        if ended:
            self._bus.publish_sessions_ended(ended)
        return ended

    async def _verify(self, username: str, password: str, address: str) -> tuple[User, str]:
        """The person and the hash that the password fits.

        An unknown name costs as much as a wrong password, so that neither tells the other.
        """
        found = await self._accounts.user_by_name(username) if len(username) <= USERNAME_CHARS_MAX else None
        if len(password) > PASSWORD_CHARS_MAX:
            raise Refused(WRONG_PASSWORD)
        if not self._decoy:
            self._decoy = await self._hash(self._random_bytes(16).hex(), address)
        stored = (found[1] if found is not None else "") or self._decoy  # some have no password
        matches = await self._hashes.run(address, lambda: _matches(stored, password))
        if found is None or not found[1] or not matches:
            raise Refused(WRONG_PASSWORD)
        return found

    def _check_password(self, password: str, username: str) -> None:
        if not self._password_chars_min <= len(password) <= PASSWORD_CHARS_MAX:
            least, most = self._password_chars_min, PASSWORD_CHARS_MAX
            raise Refused(BAD_REQUEST.because(f"a password has {least} to {most} characters"))
        reason = weakness(password, username) if self._refuses_common else None
        if reason is not None:
            raise Refused(BAD_REQUEST.because(reason))

    async def _hash(self, password: str, address: str) -> str:
        return await self._hashes.run(address, lambda: HASHER.hash(password))

    def close(self) -> None:
        self._hashes.close()


def hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def is_prolonged(session: Session) -> bool:
    """Whether each use lengthens a session; one with a fixed end was made shorter."""
    return session.expires_at_ms - session.last_used_at_ms >= PROLONGED_MS


def origin_of(user_id: str, address: str) -> str:
    """A hash of an address, another one for each person; empty for none."""
    origin = f"{user_id}\x1f{address}".encode(errors="replace")
    return hashlib.blake2b(origin, digest_size=ORIGIN_BYTES).hexdigest() if address else ""


def check_username(username: str, *, by_operator: bool) -> None:
    """Refused unless a new account can have this name."""
    refusal = check_new_username(username, by_operator=by_operator)
    if refusal is not None:
        raise Refused(refusal)


def check_display_name(display_name: str) -> str:
    """As others see it; Refused if nothing of it shows."""
    shown = shown_text(display_name)
    if not shown:
        raise Refused(NO_DISPLAY_NAME)
    return shown


def check_device(device_id: str, device_name: str = "") -> None:
    if not (1 <= len(device_id) <= DEVICE_ID_CHARS_MAX and device_id.isprintable()):
        raise Refused(BAD_DEVICE)
    if len(device_name) > DEVICE_NAME_CHARS_MAX:
        raise Refused(BAD_DEVICE_NAME)


def _matches(stored: str, password: str) -> bool:
    try:
        return HASHER.verify(stored, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
