"""The contacts and blocks of people. Read strongly.

A block is in the person's consent (`PersonConsent`), each contact is a record of its own; how many there are
is in the consent, too. It is raised before a contact is written and lowered after one is removed: a crash
leaves it too high, and who meets the limit counts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from parley.clock import Clock
from parley.concurrency import map_concurrently
from parley.errors import NO_SUCH_USER, Refused
from parley.model import (
    ChatType,
    Contact,
    PersonConsent,
    RelatedUser,
    Relation,
    Relationship,
    User,
    Visibility,
)
from parley.records.consent import Consents
from parley.store.consent import has_blocked
from parley.store.ports import Directory, Profiles, Records
from parley.store.rules import RELATIONS_MAX, TOO_MANY_RELATED
from parley.store.tables import CONTACTS, PutRecord, RemoveRecord
from parley.wire.limits import CONTACTS_MAX

READS_AT_ONCE_MAX = 16
COUNTED_AGAIN_AFTER_MS = 60_000
"""Nobody is still writing a contact that was counted so long ago."""


class Relations:
    def __init__(self, records: Records, directory: Directory, accounts: Profiles, clock: Clock) -> None:
        self._records = records
        self._directory = directory
        self._accounts = accounts
        self._clock = clock
        self._consents = Consents(records, directory)

    # Writing

    async def set_relation(
        self, user_id: str, other_id: str, relation: Relation, since: str | None
    ) -> str | None:
        """Set the relation since then; `since=None` ends it. Idempotent: returns since when it holds.

        Durable before it returns. From then on a blocked person can neither create the direct chat of the two
        nor append to it (`BLOCKED`), not even by an append that has begun, nor add or invite the other.
        Refused: unknown users, too many.
        """
        people = {user_id, other_id}
        if since is not None and (await self._accounts.profiles(list(people))).keys() != people:
            raise Refused(NO_SUCH_USER)
        held: str | None = None
        if relation is Relation.BLOCK:
            held = await self._set_block(user_id, other_id, since)
        elif since is not None:
            held = await self._add_contact(Contact(user_id=user_id, other_id=other_id, since=since))
        else:
            await self._remove_contact(user_id, other_id)
        # Also if it was set before: whoever set it may have been stopped before this.
        chats = await self._direct_chats(user_id, other_id) if relation is Relation.BLOCK else []
        await self._directory.fence(user_id, chats)
        return held

    async def _set_block(self, user_id: str, other_id: str, since: str | None) -> str | None:
        def changed(said: PersonConsent) -> PersonConsent:
            if (other_id in said.blocks) == (since is not None):
                return said
            blocks = {one: at for one, at in said.blocks.items() if one != other_id}
            if since is not None:
                if len(blocks) >= RELATIONS_MAX[Relation.BLOCK]:
                    raise Refused(TOO_MANY_RELATED[Relation.BLOCK])
                blocks[other_id] = since
            return replace(said, blocks=blocks)

        _, after = await self._consents.change(user_id, changed)
        return after.blocks.get(other_id)

    async def _direct_chats(self, user_id: str, other_id: str) -> list[str]:
        theirs = set(await self._directory.chat_ids_of(other_id))
        shared = [one for one in await self._directory.chat_ids_of(user_id) if one in theirs]
        chats = await map_concurrently(self._directory.chat, shared, READS_AT_ONCE_MAX)
        return [chat.chat_id for chat in chats if chat is not None and chat.chat_type is ChatType.DIRECT]

    async def _add_contact(self, contact: Contact) -> str:
        key = CONTACTS.key(contact)
        while True:
            (held,) = await self._records.get(CONTACTS, [key])
            if held is not None:
                return held.since
            await self._count(contact.user_id, 1)
            if await self._records.commit(CONTACTS, [PutRecord(contact, before=None)]):
                return contact.since
            await self._count(contact.user_id, -1)

    async def _remove_contact(self, user_id: str, other_id: str) -> None:
        key = (user_id, other_id)
        (held,) = await self._records.get(CONTACTS, [key])
        if held is not None and await self._records.commit(CONTACTS, [RemoveRecord(key, before=held)]):
            await self._count(user_id, -1)

    async def _count(self, user_id: str, more: int) -> None:
        """So many contacts more. Refused if they are too many."""
        said = await self._consents.of_one(user_id)
        if more > 0 and said.contacts >= RELATIONS_MAX[Relation.CONTACT]:
            await self._count_again(said)

        def changed(said: PersonConsent) -> PersonConsent:
            contacts = max(0, said.contacts + more)
            if contacts > RELATIONS_MAX[Relation.CONTACT] and more > 0:
                raise Refused(TOO_MANY_RELATED[Relation.CONTACT])
            return replace(said, contacts=contacts, contacts_at_ms=self._clock() if contacts else 0)

        await self._consents.change(user_id, changed)

    async def _count_again(self, said: PersonConsent) -> None:
        """A node that died may have left the count too high. Not while somebody may be writing."""
        if self._clock() - said.contacts_at_ms < COUNTED_AGAIN_AFTER_MS:
            return
        limit = RELATIONS_MAX[Relation.CONTACT]
        counted = len(await self._records.page(CONTACTS, said.user_id, "", limit))
        await self._consents.change(
            said.user_id, lambda now: replace(now, contacts=counted) if now == said else now
        )

    # Reading

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[RelatedUser]:
        """The people whom a person lists like this, in the order of their ids, after this one."""
        if relation is Relation.CONTACT:
            found = await self._records.page(CONTACTS, user_id, after_user_id, limit)
            return [RelatedUser(one.other_id, one.since) for one in found]
        blocks = (await self._consents.of_one(user_id)).blocks
        return [RelatedUser(*one) for one in sorted(blocks.items()) if one[0] > after_user_id][:limit]

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        """The profiles of these people, for those who exist."""
        return await self._accounts.profiles(user_ids)

    async def visibility(self, user_ids: Sequence[str]) -> dict[str, Visibility]:
        """What others may see of these people, for those who exist."""
        people, said = await asyncio.gather(self._accounts.profiles(user_ids), self._consents.of(user_ids))
        blocked = {user_id: frozenset(one.blocks) for user_id, one in said.items()}
        return {
            user_id: Visibility(user.send_read_receipts, blocked.get(user_id, frozenset()), user.is_bot)
            for user_id, user in people.items()
        }

    async def relationships(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Relationship]:
        """How these people and the viewer are related, for those who exist.

        `acquainted`: the caller knows that they share a chat, so that need not be looked for. The viewer may
        be among them.
        """
        if not user_ids:
            return {}
        people, said = await asyncio.gather(
            self._accounts.profiles(user_ids), self._consents.of([viewer_id, *user_ids])
        )
        others = [user_id for user_id in people if user_id != viewer_id]
        mine, theirs = await self._contacts(viewer_id, others, said)
        known = {viewer_id} | (mine & theirs)
        if not acquainted:
            strangers = [user_id for user_id in others if user_id not in known]
            known |= await self._directory.sharing_chats(viewer_id, strangers)
        return {
            user_id: Relationship(
                user=user,
                is_contact=user_id in mine,
                has_contact=user_id in theirs,
                is_blocked=user_id != viewer_id and has_blocked(said.get(viewer_id), user_id),
                has_blocked=user_id != viewer_id and has_blocked(said.get(user_id), viewer_id),
                is_acquainted=acquainted or user_id in known,
            )
            for user_id, user in people.items()
        }

    async def _contacts(
        self, viewer_id: str, others: list[str], said: dict[str, PersonConsent]
    ) -> tuple[set[str], set[str]]:
        """Whom of these people the viewer has as a contact, and who of them has the viewer."""
        counts = {user_id: one.contacts for user_id, one in said.items()}
        keys = [(user_id, viewer_id) for user_id in others if counts.get(user_id)]
        lists_few = counts.get(viewer_id, 0) <= len(others)
        if not lists_few:
            keys += [(viewer_id, user_id) for user_id in others]
        found = [one for one in await self._records.get(CONTACTS, keys) if one is not None]
        if lists_few and counts.get(viewer_id):
            found += await self._records.page(CONTACTS, viewer_id, "", CONTACTS_MAX)
        return (
            {one.other_id for one in found if one.user_id == viewer_id},
            {one.user_id for one in found if one.user_id != viewer_id},
        )
