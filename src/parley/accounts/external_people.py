"""People of the operator's own system: each has one account here, made at first sight.

The claim of an external id is written first, once and for good, and the account after it: several nodes that
see somebody first at the same time all make the same account, and one that dies in between leaves nothing
wrong behind. A deleted account keeps its claim: the same person does not come back by signing in again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.accounts.accounts import AccountManager, check_display_name, check_username
from parley.clock import Clock, iso
from parley.core.jwt_claims import is_external_id
from parley.core.shown_text import shown_text
from parley.errors import BAD_REQUEST, NO_SUCH_USER, USERNAME_TAKEN, Refused
from parley.model import AccountState, User
from parley.records.accounts import Accounts
from parley.records.tokens import ExternalIds
from parley.wire.limits import EXTERNAL_ID_CHARS_MAX

KNOWN_MAX = 100_000
"""Claims kept in memory: they never change."""
NO_ISSUER = ""
NO_PASSWORD = ""
"""Instead of a hash: no password fits it."""
BAD_EXTERNAL_ID = BAD_REQUEST.because(
    f"an external id is 1 to {EXTERNAL_ID_CHARS_MAX} printable characters without a space at either end"
)
NAME_STAYS = BAD_REQUEST.because("a username cannot be changed")


class WantedProfile(Struct, frozen=True):
    """What another system says of a person; None leaves it as it is."""

    username: str | None = None
    display_name: str | None = None
    about: str | None = None
    is_bot: bool | None = None


class ExternalPeople:
    """`issuer`: whose people they are; the same claim of another issuer is somebody else. Those who were put
    while none was configured are the people of any that is.
    """

    def __init__(
        self,
        issuer: str,
        external_ids: ExternalIds,
        accounts: Accounts,
        manager: AccountManager,
        clock: Clock,
        make_ids: ids.Ids,
    ) -> None:
        self._issuer = issuer
        self._external_ids = external_ids
        self._accounts = accounts
        self._manager = manager
        self._clock = clock
        self._ids = make_ids
        self._known: OrderedDict[str, str] = OrderedDict()

    async def find(self, external_id: str) -> User | None:
        """The account of this person, if they were seen."""
        if not is_external_id(external_id):
            return None
        user_id = await self._external_ids.find(external_key(self._issuer, external_id))
        if user_id is None:  # put before there was an issuer, and not named since
            user_id = await self._external_ids.find(external_key(NO_ISSUER, external_id))
        return await self._accounts.user(user_id) if user_id is not None else None

    async def seen(self, external_id: str, display_name: str) -> User:
        """The account of a person who signs in, made if there is none. Deleted ones are returned as such."""
        user_id = await self._user_id(external_id)
        user = await self._accounts.user(user_id)
        if user is not None:
            return user
        user, _ = await self._add(user_id, external_id, WantedProfile(display_name=display_name or None))
        return user

    async def put(self, external_id: str, wanted: WantedProfile) -> tuple[User, bool]:
        """The account of a person as it should be, and whether it is new."""
        if not is_external_id(external_id):
            raise Refused(BAD_EXTERNAL_ID)
        if wanted.username is not None:
            check_username(wanted.username, by_operator=True)
        user_id = await self._user_id(external_id)
        user = await self._accounts.user(user_id)
        if user is None:
            user, created = await self._add(user_id, external_id, wanted)
            if created:
                return user, True
        if user.state is AccountState.DELETED:
            raise Refused(NO_SUCH_USER.because("this account is deleted"))
        if wanted.username not in (None, user.username):
            raise Refused(NAME_STAYS)
        updated = await self._manager.update(
            user_id, display_name=wanted.display_name, about=wanted.about, is_bot=wanted.is_bot
        )
        return updated, False

    async def _user_id(self, external_id: str) -> str:
        key = external_key(self._issuer, external_id)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        user_id = await self._external_ids.find(key)
        if user_id is None:
            before = await self._external_ids.find(external_key(NO_ISSUER, external_id))
            user_id = await self._external_ids.claim(key, before or self._ids.next(ids.USER, self._clock()))
        self._known[key] = user_id
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return user_id

    async def _add(self, user_id: str, external_id: str, wanted: WantedProfile) -> tuple[User, bool]:
        """Without a username its own id is one, in small letters: nobody else can have it."""
        username, now_ms = wanted.username or user_id.lower(), self._clock()
        name = username if wanted.display_name is None else check_display_name(wanted.display_name)
        user = User(user_id, username, name, shown_text(wanted.about or ""), False, iso(now_ms))
        user = replace(user, external_id=external_id, is_bot=bool(wanted.is_bot))
        async with self._manager.events.created(user_id, now_ms):
            is_new = await self._accounts.add_user(user, NO_PASSWORD)
        if is_new:
            return user, True
        made = await self._accounts.user(user_id)
        if made is None:
            raise Refused(USERNAME_TAKEN)
        return made, False


def external_key(issuer: str, external_id: str) -> str:
    """Neither part can be read from it, so it may outlive the account. An issuer has no line break."""
    return hashlib.sha256(f"{issuer}\n{external_id}".encode()).hexdigest()
