"""The ports `ApiTokens` and `ExternalIds`, and what `Accounts` keeps of bots and people of other systems."""

import asyncio
import json
from typing import Any

from msgspec.structs import replace

from parley import ids
from parley.clock import iso
from parley.model import ApiToken, AuditRecord, Scope, User
from parley.store.tables import API_TOKENS, AUDIT, RecordTable
from tests.contracts.engines import Engine, OpenStore


def new_token(number: int = 1, **changed: object) -> ApiToken:
    token = ApiToken(
        token_id=f"tok_{number}",
        token_hash=bytes([number]) * 32,
        user_id="user_1",
        name="alerts",
        scopes=(Scope.SEND, Scope.ADMIN),
        created_at_ms=5,
        chat_id="chat_1",
        expires_at_ms=7,
        makers=("user_2", "cli:ann"),
    )
    return replace(token, **changed)


def new_user(store: OpenStore, username: str) -> User:
    now_ms = store.clock()
    return User(store.ids.next(ids.USER, now_ms), username, username, "", False, iso(now_ms))


async def test_a_token_is_found_by_its_id(engine: Engine) -> None:
    """With all that was stored of it, also after a restart; others are not found."""
    async with engine.opened() as store:
        plain = new_token(2, chat_id="", expires_at_ms=0, scopes=(Scope.READ,), makers=())
        await store.kinds.api_tokens.add(plain)
        await store.kinds.api_tokens.add(new_token(1))
        for _ in range(2):
            assert await store.kinds.api_tokens.get("tok_1") == new_token(1)
            assert await store.kinds.api_tokens.get("tok_2") == plain
            assert await store.kinds.api_tokens.all() == [new_token(1), plain]
            for unknown in ("", "tok_3", "TOK_1", "tok_1\0"):
                assert await store.kinds.api_tokens.get(unknown) is None
            await store.reopen()


def test_what_an_older_version_stored_is_read() -> None:
    """Tokens without their makers, and records without the token that it was done with."""
    record = AuditRecord(audit_id="a", at="t", actor="b", action="c", target_id="d")
    new: tuple[tuple[RecordTable[Any], Any, set[str]], ...] = (
        (API_TOKENS, new_token(makers=()), {"makers"}),
        (AUDIT, record, {"token_id", "token_name"}),
    )
    for table, stored, added in new:
        fields = json.loads(table.encode(stored))
        old = {name: value for name, value in fields.items() if name not in added}
        assert table.decode(json.dumps(old)) == stored
        assert table.is_same(json.dumps(old), stored)


async def test_the_last_use_only_rises(engine: Engine) -> None:
    """The latest time counts, whichever was noted last."""
    async with engine.opened() as store:
        await store.kinds.api_tokens.add(new_token())
        for used_ms in (50, 70, 30):
            await store.kinds.api_tokens.note_used("tok_1", used_ms)
        assert await store.kinds.api_tokens.get("tok_1") == new_token(last_used_at_ms=70)


async def test_a_removed_token_stays_away(engine: Engine) -> None:
    """Not even a use that was noted late brings it back; others stay."""
    async with engine.opened() as store:
        await store.kinds.api_tokens.add(new_token(1))
        await store.kinds.api_tokens.add(new_token(2))
        assert await store.kinds.api_tokens.remove("tok_1")
        await store.kinds.api_tokens.note_used("tok_1", 50)
        assert not await store.kinds.api_tokens.remove("tok_1")
        await store.reopen()
        assert await store.kinds.api_tokens.all() == [new_token(2)]


async def test_an_external_id_belongs_to_the_first(engine: Engine) -> None:
    """Of many who claim one at once, one gets it, and all hear who; also after a restart."""
    async with engine.opened() as store:
        wanted = [f"user_{number}" for number in range(5)]
        owners = await asyncio.gather(*(store.kinds.external_ids.claim("key", user_id) for user_id in wanted))
        assert len(set(owners)) == 1
        assert owners[0] in wanted
        await store.reopen()
        assert await store.kinds.external_ids.claim("key", "user_9") == owners[0]
        assert await store.kinds.external_ids.find("key") == owners[0]
        assert await store.kinds.external_ids.find("other") is None


async def test_an_account_is_added_once(engine: Engine) -> None:
    """Another username does not make a second account of one id, and is not taken by the attempt."""
    async with engine.opened() as store:
        ann = new_user(store, "ann")
        assert await store.accounts.add_user(ann, "hash")
        assert not await store.accounts.add_user(replace(ann, username="bea"), "other")
        assert await store.accounts.user_by_name("bea") is None
        assert await store.accounts.user_by_name("ann") == (ann, "hash")


async def test_who_somebody_is_elsewhere_stays(engine: Engine) -> None:
    """A change of the profile moves the flag of a bot and not the external id; a deletion clears that."""
    async with engine.opened() as store:
        ann = replace(new_user(store, "ann"), external_id="4711")
        await store.accounts.add_user(ann, "hash")
        await store.accounts.update_user(replace(ann, external_id="other", is_bot=True))
        for _ in range(2):
            assert await store.accounts.user(ann.user_id) == replace(ann, is_bot=True)
            await store.reopen()
        await store.account_admin.delete_user(ann.user_id, "", store.clock())
        deleted = await store.accounts.user(ann.user_id)
        assert deleted is not None
        assert deleted.external_id == ""
