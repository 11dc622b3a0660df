"""A store with something of every kind in it: what a copy must carry over."""

from typing import Any

import msgspec
from msgspec.structs import replace

from parley import ids
from parley.clock import MS_PER_DAY, iso
from parley.core.deliveries import DeadLetter, DeliveryEvent, QueueClaim, Selection, Webhook
from parley.core.marks import AmendmentNote
from parley.core.push_devices import NotificationOutcome, Provider, PushDevice, PushOutcome
from parley.model import (
    AccountState,
    Action,
    ApiToken,
    AuditRecord,
    Fanout,
    Invitation,
    Link,
    LinkPurpose,
    Notify,
    Privacy,
    QuietHours,
    Role,
    Scope,
    Session,
)
from parley.store.rows import ChatRetention
from parley.store.tables import TABLES, RecordTable
from tests.contracts.acting import (
    add_contact,
    add_direct,
    add_group,
    add_people,
    block,
    change,
    message,
    new_id,
    rename,
    stored,
)
from tests.contracts.attachments import new_attachment
from tests.contracts.engines import OpenStore
from tests.contracts.life_world import LifeWorld, delete, edit, react, reply

LASTS_MS = 2 * MS_PER_DAY
"""What expires sooner is in no copy."""


class FullStore:
    """Who and what is in it."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self.people: dict[str, str] = {}
        self.group = self.direct = self.left = self.lively = ""
        self.client_id = new_id()

    async def fill(self) -> "FullStore":
        names = ("ann", "bob", "cat", "dan", "eve")
        self.people = dict(zip(names, await add_people(self.store, *names), strict=True))
        await self._settings()
        await self._talk()
        await self._positions()
        await self._deliveries()
        await self._lives()
        await self.store.kinds.audit.record(
            AuditRecord(
                audit_id="audit_1",
                at=iso(1),
                actor="cli:ann",
                action="x",
                target_id="y",
                outcome="done",
                token_id="tok_1",
                token_name="alerts",
            )
        )
        await self.store.kinds.api_tokens.add(
            ApiToken(
                token_id="tok_1",
                token_hash=b"\x00\xff" * 16,
                user_id=self.people["bob"],
                name="alerts",
                scopes=(Scope.SEND, Scope.READ),
                created_at_ms=1,
                chat_id=self.group,
                last_used_at_ms=2,
                makers=("cli:ann", self.people["ann"]),
                expires_at_ms=3,
            )
        )
        await self.store.attachments.add(new_attachment(self.group, user_id=self.people["bob"]))
        await self.store.kinds.external_ids.claim("key of cat", self.people["cat"])
        await self.store.kinds.links.add(
            Link(
                link_id="lnk_1",
                digest="digest",
                purpose=LinkPurpose.INVITE,
                created_by=self.people["ann"],
                created_at_ms=1,
                expires_at_ms=2,
                note="für alle",
            )
        )
        for table in TABLES:
            if not [one async for page in self.store.records.scan(table) for one in page]:
                lasting = self.store.clock() + LASTS_MS
                await self.store.records.load(table, [one_of_each(table, lasting)])
        await self.store.cursors.flush()
        await self.store.kinds.raised.flush()
        return self

    async def _settings(self) -> None:
        store, (ann, bob, cat, dan, eve) = self.store, self.people.values()
        await add_contact(store, ann, bob)
        await add_contact(store, bob, ann)
        await block(store, cat, bob)
        user = await store.accounts.user(bob)
        assert user is not None
        quiet = QuietHours("22:00", "07:00", "Europe/Berlin")
        changed = replace(
            user,
            display_name="Bob 🙂",
            about="l'homme\n",
            is_operator=True,
            last_seen_privacy=Privacy.CONTACTS,
            who_may_add=Privacy.CONTACTS,
            send_read_receipts=False,
            do_not_disturb=quiet,
            is_bot=True,
        )
        await store.accounts.update_user(changed, "another hash")
        store.accounts.note_seen(bob, store.clock())
        await store.account_admin.set_state(dan, AccountState.DISABLED, bob)
        session = Session("session_1", ann, "phone", "Ann's phone", 1, 2, store.clock() + MS_PER_DAY, "abc")
        await store.sessions.add(session, b"\x00\xff" * 16)
        assert eve

    async def _talk(self) -> None:
        store, (ann, bob, cat, dan, eve) = self.store, self.people.values()
        self.group = await add_group(store, ann, cat, dan, eve)
        self.direct = await add_direct(store, ann, bob)
        self.left = await add_group(store, cat, ann, open_to_join=True)
        self.lively = await add_group(store, ann, cat)
        mention = message(self.group, cat, "see @ann", self.client_id)
        mention.mentions, mention.display_time = (ann, eve), "2020-02-02T02:02:02Z"
        await store.log.append([message(self.group, ann, "ünï\u2028💬 \"'<>&\\ "), mention])
        await store.log.append([message(self.direct, ann, text) for text in ("one", "two", "three")])
        await store.log.append([change(self.group, ann, Action.ROLE, cat, Role.ADMIN)])
        await store.log.append([rename(self.group, ann, "another title")])
        await store.log.append([change(self.left, ann, Action.LEFT, ann)])
        await store.log.append([message(self.left, cat, "alone")])
        await store.account_admin.delete_user(eve, bob, store.clock())
        invited = Invitation(bob, self.group, ann, Role.MEMBER, iso(store.clock()))
        await store.invitations.invite(invited)

    async def _positions(self) -> None:
        store, (ann, bob, cat, *_) = self.store, self.people.values()
        store.cursors.note_acked(ann, "phone", self.group, 2, store.clock())
        store.cursors.note_acked(ann, "tablet", self.group, 1, store.clock())
        store.cursors.note_read(bob, self.direct, 2, store.clock())
        await block(store, ann, bob)
        await store.member_states.mute(cat, self.group, "2030-01-01T00:00:00Z")
        await store.member_states.set_notify(cat, self.group, Notify.MENTIONS)

    async def _lives(self) -> None:
        """A message of the group is answered, edited, reacted to and deleted; rules about what is kept."""
        store, ann, cat = self.store, self.people["ann"], self.people["cat"]
        world = LifeWorld(store)
        target = (await stored(store, message(self.lively, ann, "first words"))).message_id
        gone = (await world.done(reply(self.lively, cat, target, "so?"))).message_id
        await world.done(edit(self.lively, ann, target, "second words"))
        await world.done(react(self.lively, cat, target, "👍"))
        await world.done(react(self.lively, cat, target, "👎"))
        await world.done(react(self.lively, cat, target, "👎", on=False))
        await world.done(delete(self.lively, cat, gone))
        key = ids.client_key(new_id())
        assert key is not None
        await world.amendments.begin(AmendmentNote(self.lively, key, 1, store.clock()))
        assert store.kinds.erasures is not None
        await store.kinds.retentions.decide(self.lively, ChatRetention(days=30))
        await store.kinds.retentions.decide(self.direct, ChatRetention(is_held=True))
        await store.kinds.erasures.add(self.people["eve"], store.clock())

    async def _deliveries(self) -> None:
        store, (ann, bob, *_) = self.store, self.people.values()
        hook = Webhook(
            webhook_id="webhook_1", url="https://example.org", events=("a", "b"), secret="s", created_ms=5
        )
        await store.deliveries.webhooks.add(hook)
        await store.deliveries.queues.extend(self.group, [hook.webhook_id], 1, 2)
        await store.deliveries.queues.extend(self.direct, [bob], 1, 3, QueueClaim("token", 10**15))
        for number, dlq_id in enumerate(("dlq_1", "dlq_2"), 1):
            dead_letter = DeadLetter(
                dlq_id=dlq_id,
                chat_id=self.group,
                sequence=number,
                recipient=hook.webhook_id,
                message_id="msg_1",
                sender_id=ann,
                created_ms=1,
                error="e",
                detail="d",
                retry_count=3,
                first_attempt_ms=1,
                last_attempt_ms=2,
                dlq_ms=3,
                changed_ms=store.clock(),
                source_topic="t",
                history=(DeliveryEvent(1, "failed", "e"),),
            )
            await store.deliveries.dead_letters.add(dead_letter)
        event = DeliveryEvent(7, "queued", actor="ann")
        await store.deliveries.dead_letters.queue(Selection(ids=("dlq_2",)), "job_1", event)
        for device_id in ("phone", "tablet"):
            await store.push.devices.put(
                PushDevice(
                    user_id=bob,
                    device_id=device_id,
                    provider=Provider.WEBPUSH,
                    address="https://push.example.org",
                    public_key="p",
                    auth="a",
                    preview=False,
                    created_ms=9,
                )
            )
        for sequence, outcome in ((1, NotificationOutcome.PUSHED), (2, NotificationOutcome.SKIPPED)):
            ring = PushOutcome(
                chat_id=self.direct,
                sequence=sequence,
                user_id=bob,
                device_id="phone",
                provider=Provider.WEBPUSH,
                outcome=outcome,
                detail="",
                at_ms=store.clock(),
            )
            await store.push.outcomes.note(ring)
        await store.push.fanouts.choose(self.group, Fanout.READ)
        await store.kinds.server_keys.key("vapid", "secret key")


def one_of_each(table: RecordTable[Any], number: int) -> Any:
    """A record of a table, with something in every field. `number`: in those that are numbers, or times."""
    return msgspec.convert(_sample(msgspec.inspect.type_info(table.kind), number), table.kind)


def _sample(found: msgspec.inspect.Type, number: int) -> Any:
    """A value of a type, as JSON has it: the last member of an enumeration, one item in a list."""
    match found:
        case msgspec.inspect.StructType(fields=fields):
            return {one.encode_name: _sample(one.type, number) for one in fields}
        case msgspec.inspect.EnumType(cls=cls):
            return list(cls)[-1].value
        case msgspec.inspect.UnionType(types=types):
            known = (one for one in types if not isinstance(one, msgspec.inspect.NoneType))
            return _sample(next(known), number)
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            return [_sample(item, number)]
        case msgspec.inspect.DictType(value_type=value):
            return {"phone": _sample(value, number)}
        case msgspec.inspect.IntType():
            return number
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.BytesType():
            return b"\x00\xff" * 16
        case msgspec.inspect.StrType():
            return "Ünïcode ✓"
    raise TypeError(f"no sample of {found}")
