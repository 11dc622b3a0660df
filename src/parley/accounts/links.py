"""Links that operators make: invitations to register, and resets of passwords. See docs/invite-links.md.

The token of a link is shown once, and its digest is all that is kept. A use is taken by replacing the record
that was read, so two who use the last one at the same time do not both have it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec.structs import replace

from parley import ids
from parley.accounts.accounts import AccountManager
from parley.audit import AuditTrail, OperatorCall
from parley.clock import MS_PER_DAY, MS_PER_SECOND, Clock
from parley.core.links import LinkState, decide_use, state_of
from parley.core.shown_text import shown_text
from parley.errors import BAD_REQUEST, NO_SUCH_LINK, NOT_FOUND, Refused, StoreDamaged, StoreUnavailable
from parley.model import AccountState, Link, LinkPurpose, User
from parley.records.book import Book
from parley.wire.limits import LINK_SECONDS_MAX, LINK_USES_MAX

SECRET_BYTES = 32
INVITE_SECONDS = 7 * 86_400
RESET_SECONDS = 86_400
"""How long links live if nobody says otherwise."""
LINKS_MAX = 1_000
KEPT_MS = 30 * MS_PER_DAY
"""How long a link that cannot be used is still refused for its own reason."""
TRIES_MAX = 100
"""Each time that one fails, somebody else has used the link."""
PREFIXES = {LinkPurpose.INVITE: "inv_", LinkPurpose.PASSWORD_RESET: "rst_"}
BAD_SECONDS = BAD_REQUEST.because(f"expires_in_seconds is 1 to {LINK_SECONDS_MAX}")
BAD_USES = BAD_REQUEST.because(f"uses is 1 to {LINK_USES_MAX}")
TOO_MANY = BAD_REQUEST.because(f"there are {LINKS_MAX} links; revoke some first")
IS_DELETED = NOT_FOUND.because("this account is deleted")


class LinkService:
    def __init__(
        self,
        links: Book[Link],
        manager: AccountManager,
        trail: AuditTrail,
        clock: Clock,
        make_ids: ids.Ids,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._links = links
        self._manager = manager
        self._trail = trail
        self._clock = clock
        self._ids = make_ids
        self._random_bytes = random_bytes

    # Operators

    async def invite(
        self, call: OperatorCall, uses: int = 1, seconds: int | None = None, note: str = ""
    ) -> tuple[str, Link]:
        """A link by which so many people may register, and its token."""
        if not 1 <= uses <= LINK_USES_MAX:
            raise Refused(BAD_USES)
        async with self._trail.audited(call, "invite.make", "", f"uses={uses} note={note}"):
            seconds = INVITE_SECONDS if seconds is None else seconds
            return await self._make(LinkPurpose.INVITE, call, seconds, uses_max=uses, note=note)

    async def offer_reset(
        self, call: OperatorCall, user_id: str, seconds: int | None = None
    ) -> tuple[str, Link]:
        """A link by which a person sets a new password, once. An older one of theirs is revoked."""
        async with self._trail.audited(call, "user.password_reset", user_id):
            if (await self._manager.user(user_id)).state is AccountState.DELETED:
                raise Refused(IS_DELETED)
            await self._revoke_resets(user_id)
            seconds = RESET_SECONDS if seconds is None else seconds
            return await self._make(LinkPurpose.PASSWORD_RESET, call, seconds, user_id=user_id)

    async def page(self, purpose: LinkPurpose, before: str, limit: int) -> list[Link]:
        """The newest first. There are few, so that those of another purpose may be read over."""
        found = [link for link in await self._links.page(before, LINKS_MAX) if link.purpose is purpose]
        return found[:limit]

    async def revoke(self, call: OperatorCall, link_id: str) -> None:
        """Nobody uses it from now on. May be repeated."""
        async with self._trail.audited(call, "link.revoke", link_id):
            for _ in range(TRIES_MAX):
                link = await self._links.get(link_id)
                if link is None:
                    raise Refused(NO_SUCH_LINK)
                if link.revoked_at_ms or await self._links.swap(link, self._revoked(link)):
                    return
            raise StoreUnavailable("this link is being used by too many at once")

    async def withdraw_resets(self, call: OperatorCall, user_id: str) -> None:
        """Nobody sets this person's password by a link from now on."""
        async with self._trail.audited(call, "user.password_reset.revoke", user_id):
            await self._manager.user(user_id)
            await self._revoke_resets(user_id)

    async def _revoke_resets(self, user_id: str) -> None:
        for link in await self._links.page("", LINKS_MAX):
            if link.user_id == user_id and state_of(link, self._clock()) is LinkState.OPEN:
                await self._links.swap(link, self._revoked(link))  # False: it was used meanwhile

    def _revoked(self, link: Link) -> Link:
        return replace(link, revoked_at_ms=self._clock())

    async def _make(
        self,
        purpose: LinkPurpose,
        call: OperatorCall,
        seconds: int,
        *,
        uses_max: int = 1,
        user_id: str = "",
        note: str = "",
    ) -> tuple[str, Link]:
        if not 1 <= seconds <= LINK_SECONDS_MAX:
            raise Refused(BAD_SECONDS)
        await self._make_room()
        now_ms = self._clock()
        link_id = self._ids.next(ids.LINK, now_ms)
        token = PREFIXES[purpose] + link_id.removeprefix(ids.LINK) + self._random_bytes(SECRET_BYTES).hex()
        link = Link(
            link_id=link_id,
            digest=digest_of(token),
            purpose=purpose,
            created_by=call.actor,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + seconds * MS_PER_SECOND,
            uses_max=uses_max,
            user_id=user_id,
            note=shown_text(note),
        )
        return token, await self._links.add(link)

    async def _make_room(self) -> None:
        """Links that are over for long go when others come."""
        kept, now_ms = 0, self._clock()
        for link in await self._links.page("", LINKS_MAX):
            if max(link.expires_at_ms, link.revoked_at_ms) + KEPT_MS <= now_ms:
                await self._links.remove(link.link_id)
            else:
                kept += 1
        if kept >= LINKS_MAX:
            raise Refused(TOO_MANY)

    # Those who use them

    async def register(self, token: str, username: str, password: str, address: str = "") -> User:
        """An account for who holds an invitation. One that fails for another reason uses nothing up."""
        await self._check(token, LinkPurpose.INVITE)

        @asynccontextmanager
        async def claim(user_id: str) -> AsyncIterator[None]:
            link = await self._take(token, LinkPurpose.INVITE, user_id)
            try:
                yield
            except (Refused, StoreDamaged, StoreUnavailable):  # nothing was stored
                await self._give_back(link.link_id, user_id)
                raise

        return await self._manager.register(username, password, address=address, claim=claim)

    async def reset(self, token: str, password: str, request_id: str, address: str = "") -> None:
        """Set the password of the person whom the link is for, and end all their sessions."""
        link = await self._check(token, LinkPurpose.PASSWORD_RESET)
        user = await self._manager.user(link.user_id)
        if user.state is AccountState.DELETED:
            raise Refused(IS_DELETED)
        hashed = await self._manager.hashed(password, user.username, address)
        async with self._trail.audited(
            OperatorCall(user.user_id, request_id), "user.password_reset.use", user.user_id, link.link_id
        ):
            await self._take(token, LinkPurpose.PASSWORD_RESET, user.user_id)
            await self._manager.store_password(user.user_id, hashed)

    async def _check(self, token: str, purpose: LinkPurpose) -> Link:
        link = await self._links.get(link_id_of(token, purpose))
        refusal = decide_use(link, digest_of(token), purpose, self._clock())
        if refusal is not None:
            raise Refused(refusal)
        assert link is not None
        return link

    async def _take(self, token: str, purpose: LinkPurpose, user_id: str) -> Link:
        for _ in range(TRIES_MAX):
            link = await self._check(token, purpose)
            taken = replace(link, used_by=(*link.used_by, user_id))
            if await self._links.swap(link, taken):
                return taken
        raise StoreUnavailable("this link is being used by too many at once")

    async def _give_back(self, link_id: str, user_id: str) -> None:
        for _ in range(TRIES_MAX):
            link = await self._links.get(link_id)
            if link is None or user_id not in link.used_by:
                return
            others = tuple(one for one in link.used_by if one != user_id)
            if await self._links.swap(link, replace(link, used_by=others)):
                return


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def link_id_of(token: str, purpose: LinkPurpose) -> str:
    """The id of the link that a token is of, as far as the token says."""
    return ids.LINK + token.removeprefix(PREFIXES[purpose])[: ids.ULID_LENGTH]
