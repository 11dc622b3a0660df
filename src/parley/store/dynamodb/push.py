"""The ports of push on DynamoDB.

The devices of a person share one item, so that one request reads those of a hundred people. Its writers
compare and set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from parley.clock import MS_PER_DAY, MS_PER_SECOND
from parley.dynamodb import ConditionFailed, Dynamo, Item, is_valid_key, number, retry_unknown
from parley.errors import StoreUnavailable
from parley.model import Fanout
from parley.store.dynamodb.schema import CHATS, PUSH_DEVICES, PUSH_OUTCOMES, SEPARATOR
from parley.store.push.rows import (
    DEVICES_PER_PERSON_MAX,
    GIVEN,
    OUTCOME_DAYS,
    Provider,
    PushDevice,
    PushOutcome,
    RingOutcome,
)

ATTEMPTS_MAX = 10
RUNG = "rung"
"""Instead of a position, in the key of the newest one that rang on a device."""


class KeptDevice(Struct, array_like=True, gc=False):
    """A device as the item of its person holds it."""

    device_id: str
    provider: str
    address: str
    public_key: str
    auth: str
    preview: bool
    secret: str
    created_ms: int


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[KeptDevice]).decode


class DynamoPush:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self.devices = DynamoPushDevices(dynamo)
        self.outcomes = DynamoPushOutcomes(dynamo)
        self.fanouts = DynamoChatFanouts(dynamo)


class DynamoPushDevices:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def put(self, device: PushDevice) -> bool:
        kept = KeptDevice(
            device.device_id,
            device.provider.value,
            device.address,
            device.public_key,
            device.auth,
            device.preview,
            device.secret,
            device.created_ms,
        )

        def with_it(devices: list[KeptDevice]) -> list[KeptDevice] | None:
            others = [one for one in devices if one.device_id != device.device_id]
            if len(others) >= DEVICES_PER_PERSON_MAX:
                return None
            return sorted([*others, kept], key=lambda one: one.device_id)

        return await self._change(device.user_id, with_it)

    async def remove(self, user_id: str, device_id: str, address: str | None = None) -> bool:
        def without_it(devices: list[KeptDevice]) -> list[KeptDevice] | None:
            found = next((one for one in devices if one.device_id == device_id), None)
            if found is None or address not in (None, found.address):
                return None
            return [one for one in devices if one.device_id != device_id]

        return is_valid_key(user_id) and await self._change(user_id, without_it)

    async def _change(
        self, user_id: str, change: Callable[[list[KeptDevice]], list[KeptDevice] | None]
    ) -> bool:
        """Write what `change` makes of a person's devices; False if it makes nothing of them."""
        key: Item = {"user_id": user_id}
        for _ in range(ATTEMPTS_MAX):
            item = await self._dynamo.get(PUSH_DEVICES, key)
            devices = change(_unpack(cast(bytes, item["devices"])) if item is not None else [])
            if devices is None:
                return False
            if await self._write(key, devices, number(item or {}, "revision")):
                return True
        raise StoreUnavailable("this person's devices are being written to by too many at once")

    async def _write(self, key: Item, devices: list[KeptDevice], revision: int) -> bool:
        """False if another writer was faster."""
        try:
            await self._dynamo.update(
                PUSH_DEVICES,
                key,
                "SET devices = :devices, revision = :next",
                {":devices": _pack(devices), ":next": revision + 1, ":revision": revision},
                condition="attribute_not_exists(revision) OR revision = :revision",
            )
        except ConditionFailed:
            return False
        return True

    async def of(self, user_ids: Sequence[str]) -> dict[str, list[PushDevice]]:
        keys: list[Item] = [
            {"user_id": user_id} for user_id in sorted(set(user_ids)) if is_valid_key(user_id)
        ]
        items = await self._dynamo.batch_get(PUSH_DEVICES, keys)
        found = {cast(str, item["user_id"]): devices_in(item) for item in items}
        return {user_id: devices for user_id, devices in found.items() if devices}

    async def are_there(self) -> bool:
        return bool((await self._dynamo.scan(PUSH_DEVICES, limit=1)).items)


def devices_in(item: Item) -> list[PushDevice]:
    """The devices of a person's item."""
    return [
        PushDevice(
            user_id=cast(str, item["user_id"]),
            device_id=one.device_id,
            provider=Provider(one.provider),
            address=one.address,
            public_key=one.public_key,
            auth=one.auth,
            preview=one.preview,
            secret=one.secret,
            created_ms=one.created_ms,
        )
        for one in _unpack(cast(bytes, item["devices"]))
    ]


class DynamoPushOutcomes:
    """One item for each message and device; DynamoDB deletes them when their time is over."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def note(self, outcome: PushOutcome) -> None:
        item: Item = _place(outcome.chat_id, outcome.sequence) | {
            "device": f"{outcome.user_id}{SEPARATOR}{outcome.device_id}",
            "provider": outcome.provider.value,
            "outcome": outcome.outcome.value,
            "detail": outcome.detail,
            "at_ms": outcome.at_ms,
            "ttl": (outcome.at_ms + OUTCOME_DAYS * MS_PER_DAY) // MS_PER_SECOND,
        }
        if outcome.outcome in GIVEN:
            await self._raise_rung(outcome)
        await retry_unknown(lambda: self._dynamo.put(PUSH_OUTCOMES, item))

    async def _raise_rung(self, outcome: PushOutcome) -> None:
        """The newest position of a device, in an item beside its outcomes. Never goes back."""
        key = _rung_place(outcome.chat_id, outcome.user_id, outcome.device_id)
        values: Item = {
            ":sequence": outcome.sequence,
            ":ttl": (outcome.at_ms + OUTCOME_DAYS * MS_PER_DAY) // MS_PER_SECOND,
        }
        with contextlib.suppress(ConditionFailed):  # it is there, or newer
            await retry_unknown(
                lambda: self._dynamo.update(
                    PUSH_OUTCOMES,
                    key,
                    "SET #sequence = :sequence, #ttl = :ttl",
                    values,
                    condition="attribute_not_exists(#sequence) OR #sequence < :sequence",
                    names={"#sequence": "sequence", "#ttl": "ttl"},
                )
            )

    async def rung_through(self, chat_id: str, user_id: str, device_id: str) -> int:
        item = await self._dynamo.get(PUSH_OUTCOMES, _rung_place(chat_id, user_id, device_id))
        return number(item or {}, "sequence")

    async def find(self, chat_id: str, sequence: int, user_id: str, device_id: str) -> PushOutcome | None:
        key = _place(chat_id, sequence) | {"device": f"{user_id}{SEPARATOR}{device_id}"}
        item = await self._dynamo.get(PUSH_OUTCOMES, key)
        return outcome_in(chat_id, sequence, item) if item is not None else None

    async def of_message(self, chat_id: str, sequence: int) -> list[PushOutcome]:
        values: Item = {":place": _place(chat_id, sequence)["place"]}
        items = await self._dynamo.query_all(PUSH_OUTCOMES, "place = :place", values)
        return [outcome_in(chat_id, sequence, item) for item in items]

    async def expire(self, before_ms: int) -> int:
        return 0


class DynamoChatFanouts:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def of(self, chat_id: str) -> Fanout | None:
        chat = await self._dynamo.get(CHATS, {"chat_id": chat_id}) if is_valid_key(chat_id) else None
        chosen = (chat or {}).get("fanout")
        return Fanout(cast(str, chosen)) if chosen else None

    async def choose(self, chat_id: str, fanout: Fanout | None) -> None:
        if not is_valid_key(chat_id):
            return
        change, values = "REMOVE fanout", Item()
        if fanout is not None:
            change, values = "SET fanout = :fanout", Item({":fanout": fanout.value})
        try:
            await retry_unknown(
                lambda: self._dynamo.update(
                    CHATS, {"chat_id": chat_id}, change, values, condition="attribute_exists(chat_id)"
                )
            )
        except ConditionFailed:
            return  # there is no such chat


def _place(chat_id: str, sequence: int) -> Item:
    return {"place": f"{chat_id}{SEPARATOR}{sequence}"}


def _rung_place(chat_id: str, user_id: str, device_id: str) -> Item:
    return {"place": f"{chat_id}{SEPARATOR}{RUNG}", "device": f"{user_id}{SEPARATOR}{device_id}"}


def outcome_at(item: Item) -> PushOutcome | None:
    """The outcome of an item, wherever it was found; None for the mark of the newest position."""
    chat_id, _, sequence = cast(str, item["place"]).partition(SEPARATOR)
    return outcome_in(chat_id, int(sequence), item) if sequence != RUNG else None


def outcome_in(chat_id: str, sequence: int, item: Item) -> PushOutcome:
    user_id, _, device_id = cast(str, item["device"]).partition(SEPARATOR)
    return PushOutcome(
        chat_id=chat_id,
        sequence=sequence,
        user_id=user_id,
        device_id=device_id,
        provider=Provider(cast(str, item["provider"])),
        outcome=RingOutcome(cast(str, item["outcome"])),
        detail=cast(str, item["detail"]),
        at_ms=number(item, "at_ms"),
    )
