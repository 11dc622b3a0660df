"""Several entries of one batch in one item of `messages`: a bundle.

DynamoDB charges an item by the kilobyte that is begun, and twice in a transaction. So the messages of a batch
share items. A bundle has the key of its first position, and `through` is its last. It is written whole, once,
and never changed. A message alone is a plain item, as it was before there were bundles: both forms are read.

Readers see plain items: `unbundled` turns what a table returned into one item for each position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from parley.model import Kind
from parley.store.dynamodb.driver import Dynamo, Item, Put, map_concurrently, number
from parley.store.dynamodb.entries import (
    NEW_POSITION,
    joined_mentions,
    packed_files,
    put_entry,
    row_in,
    sequence_of,
)
from parley.store.dynamodb.schema import MESSAGES
from parley.store.paging import Row
from parley.wire.frames import Entry
from parley.wire.limits import KIB

BUNDLE = "bundle"
"""The kind of an item that holds several entries."""
BUNDLED_MAX = 49
BUNDLE_BYTES_MAX = 32 * KIB
"""Of the texts in a bundle: to read one message is to read its bundle. DynamoDB's own limit is 400 KB."""
READS_AT_ONCE_MAX = 16
SPAN_NAMES = {"#s": "sequence", "#t": "through"}
SPAN = "#s, #t"
"""What a query must return of an item for `span_of`."""


class RareFields(Struct, array_like=True, gc=False):
    """What few entries have."""

    body_digest: str | None = None
    reply_to: str | None = None
    edited_at: str | None = None
    edit_sequence: int | None = None
    attachments: str | None = None


class BundledEntry(Struct, array_like=True, gc=False):
    """What an entry does not share with the others of its bundle; its sender is in `senders`."""

    message_id: str
    client_message_id: str | None
    content: str
    content_type: str
    display_time: str | None = None
    mentions: str | None = None
    rare: str | RareFields | None = None
    """A text is the `body_digest`, as items from before replies and edits have it."""


_pack = msgspec.msgpack.Encoder().encode
_unpack_entries = msgspec.msgpack.Decoder(list[BundledEntry]).decode
_unpack_numbers = msgspec.msgpack.Decoder(list[int]).decode
_unpack_senders = msgspec.msgpack.Decoder(list[str]).decode


# Writing


def bundled(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The entries of one batch, in order, as they share items: no item has a hole or grows too large."""
    together: list[Entry] = []
    size = 0
    for entry in entries:
        room = _text_bytes(entry)
        if together and not (_follows(together, entry) and size + room <= BUNDLE_BYTES_MAX):
            yield together
            together, size = [], 0
        together.append(entry)
        size += room
    if together:
        yield together


def _follows(together: list[Entry], entry: Entry) -> bool:
    first, last = together[0], together[-1]
    return (
        len(together) < BUNDLED_MAX
        and entry.sequence == last.sequence + 1
        and entry.kind == last.kind == Kind.MESSAGE.value
        and (entry.epoch, entry.created_at, entry.server_timestamp)
        == (first.epoch, first.created_at, first.created_at)
    )


def _text_bytes(entry: Entry) -> int:
    texts = (
        entry.message_id,
        entry.sender_id,
        entry.client_message_id,
        entry.content,
        entry.content_type,
        entry.display_time,
        joined_mentions(entry),
        entry.reply_to or None,
        packed_files(entry),
    )
    return sum(len(text.encode()) for text in texts if text is not None)


def put_entries(entries: Sequence[Entry]) -> Put:
    """One item for these entries, which follow each other. Its position is written once."""
    first = entries[0]
    if len(entries) == 1:
        return put_entry(first)
    item: Item = {
        "chat_id": first.chat_id,
        "sequence": first.sequence,
        "through": entries[-1].sequence,
        "epoch": first.epoch,
        "kind": BUNDLE,
        "created_at": first.created_at,
        "senders": _pack([entry.sender_id for entry in entries]),
        "entries": _pack([_bundled_entry(entry) for entry in entries]),
    }
    return Put(MESSAGES, item, NEW_POSITION)


def _bundled_entry(entry: Entry) -> BundledEntry:
    return BundledEntry(
        entry.message_id,
        entry.client_message_id,
        entry.content,
        entry.content_type,
        entry.display_time,
        joined_mentions(entry),
        _rare_fields(entry),
    )


def _rare_fields(entry: Entry) -> str | RareFields | None:
    """A field more in each entry of a full bundle costs two write units."""
    digest = entry.body_digest or None
    if entry.reply_to or entry.edited_at or entry.attachments:
        return RareFields(
            digest,
            entry.reply_to or None,
            entry.edited_at or None,
            entry.edit_sequence or None,
            packed_files(entry),
        )
    return digest


# Reading


def span_of(item: Item) -> range:
    """The positions that an item holds."""
    first = sequence_of(item)
    return range(first, max(first, number(item, "through")) + 1)


def end_of(item: Item) -> int:
    return span_of(item)[-1]


def positions_in(items: Iterable[Item]) -> list[int]:
    """Every position that these items hold, in their order."""
    return [sequence for item in items for sequence in span_of(item)]


def unbundled(item: Item) -> list[Item]:
    """A plain item for each position. Those of a bundle that cannot be read have no contents."""
    if item.get("kind") != BUNDLE:
        return [item]
    span = span_of(item)
    shared: Item = {name: item[name] for name in ("chat_id", "epoch", "kind") if name in item}
    try:
        entries = _unpack_entries(cast(bytes, item.get("entries")))
    except (msgspec.DecodeError, TypeError):
        entries = []
    senders, deleted = senders_in(item), deleted_in(item)
    if not len(entries) == len(senders) == len(span):
        return [{**shared, "sequence": sequence} for sequence in span]
    shared |= {"kind": Kind.MESSAGE.value}
    for name in ("created_at", "server_timestamp"):
        shared[name] = item.get("created_at")
    plain: list[Item] = []
    for sequence, sender_id, entry in zip(span, senders, entries, strict=True):
        one: Item = {**shared, "sequence": sequence, "sender_id": sender_id}
        one |= _fields(entry)
        if sequence in deleted:
            one["deleted"] = True
        plain.append(one)
    return plain


def _fields(entry: BundledEntry) -> Item:
    """Those of a plain item."""
    fields = msgspec.structs.asdict(entry)
    rare = fields.pop("rare")
    fields |= {"body_digest": rare} if isinstance(rare, str) else msgspec.structs.asdict(rare or RareFields())
    return {name: value for name, value in fields.items() if value is not None}


def deleted_in(bundle: Item) -> list[int]:
    """The positions of a bundle whose content was removed: its only attribute that is written later."""
    packed = bundle.get("deleted")
    return _unpack_numbers(packed) if isinstance(packed, bytes) else []


def redacted(item: Item, sequence: int, entry: Entry) -> Item | None:
    """An item with this entry in place of the one at the same position; None if it does not hold it."""
    if item.get("kind") != BUNDLE:
        return {**put_entry(entry).item} if sequence_of(item) == sequence and "message_id" in item else None
    if sequence not in span_of(item):
        return None
    entries = _unpack_entries(cast(bytes, item["entries"]))
    entries[sequence - sequence_of(item)] = _bundled_entry(entry)
    if entry.deleted is not True:
        return {**item, "entries": _pack(entries)}
    deleted = sorted({*deleted_in(item), sequence})
    return {**item, "entries": _pack(entries), "deleted": _pack(deleted)}


def senders_in(bundle: Item) -> list[str]:
    """Who wrote the entries of a bundle, in their order; nobody if it is damaged."""
    try:
        return _unpack_senders(cast(bytes, bundle.get("senders")))
    except (msgspec.DecodeError, TypeError):
        return []


def all_unbundled(items: Iterable[Item]) -> list[Item]:
    return [plain for item in items for plain in unbundled(item)]


async def last_position(dynamo: Dynamo, chat_id: str) -> int:
    """The highest number in a log, read strongly; there may be holes below it in two_phase."""
    page = await dynamo.query(
        MESSAGES,
        "chat_id = :chat",
        {":chat": chat_id},
        forward=False,
        limit=1,
        projection=SPAN,
        names=SPAN_NAMES,
    )
    return end_of(page.items[0]) if page.items else 0


async def bundle_across(dynamo: Dynamo, chat_id: str, sequence: int) -> Item | None:
    """The bundle that begins below a position and holds it, read strongly; None if there is none."""
    page = await dynamo.query(
        MESSAGES,
        "chat_id = :chat AND #s BETWEEN :first AND :last",
        {":chat": chat_id, ":first": sequence - BUNDLED_MAX + 1, ":last": sequence - 1},
        names={"#s": "sequence"},
        forward=False,
        limit=1,
    )
    return next((item for item in page.items if end_of(item) >= sequence), None)


async def bundled_positions(dynamo: Dynamo, chat_id: str, first: int, last: int) -> set[int]:
    """The positions between these two that are in bundles, read strongly."""
    items = await dynamo.query_all(
        MESSAGES,
        "chat_id = :chat AND #s BETWEEN :first AND :last",
        {":chat": chat_id, ":first": first - BUNDLED_MAX + 1, ":last": last},
        names=SPAN_NAMES,
        projection=SPAN,
    )
    held = positions_in(item for item in items if len(span_of(item)) > 1)
    return {sequence for sequence in held if first <= sequence <= last}


async def items_at(dynamo: Dynamo, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Item]:
    """The plain items at these positions, read strongly. A position without an item may be in a bundle."""
    wanted = sorted(set(places))
    keys: list[Item] = [{"chat_id": chat_id, "sequence": sequence} for chat_id, sequence in wanted]
    found = _by_place(await dynamo.batch_get(MESSAGES, keys))

    async def look_across(place: tuple[str, int]) -> None:
        if place not in found:  # another look may have found the same bundle
            bundle = await bundle_across(dynamo, *place)
            found.update(_by_place([] if bundle is None else [bundle]))

    missing = [place for place in wanted if place not in found and place[1] > 1]
    await map_concurrently(look_across, missing, READS_AT_ONCE_MAX)
    return {place: found[place] for place in wanted if place in found}


async def item_at(dynamo: Dynamo, chat_id: str, sequence: int) -> Item | None:
    """The plain item at a position, read strongly."""
    return (await items_at(dynamo, [(chat_id, sequence)])).get((chat_id, sequence))


async def items_of_keys(dynamo: Dynamo, keys: Iterable[Item]) -> dict[int, Item]:
    """The plain items of the messages of these idempotency keys of one chat, by position, read strongly."""
    places = {(cast(str, key["chat_id"]), number(key, "item_sequence") or sequence_of(key)) for key in keys}
    wanted: list[Item] = [{"chat_id": chat_id, "sequence": sequence} for chat_id, sequence in sorted(places)]
    return {sequence_of(plain): plain for plain in all_unbundled(await dynamo.batch_get(MESSAGES, wanted))}


def _by_place(items: Iterable[Item]) -> dict[tuple[str, int], Item]:
    return {(cast(str, plain["chat_id"]), sequence_of(plain)): plain for plain in all_unbundled(items)}


async def read_rows(dynamo: Dynamo, chat_id: str, after: int, until: int, *, forward: bool) -> list[Row]:
    """Positions between two numbers, one page of the table; a Query may miss what is being committed."""
    first = after + 1 if forward else max(1, after + 2 - BUNDLED_MAX)
    page = await dynamo.query(
        MESSAGES,
        "chat_id = :chat AND #s BETWEEN :first AND :last",
        {":chat": chat_id, ":first": first, ":last": until},
        names={"#s": "sequence"},
        forward=forward,
        limit=until - after,
    )
    items = page.items
    if forward and after > 0 and not (items and sequence_of(items[0]) == first):
        bundle = await bundle_across(dynamo, chat_id, first)
        items = items if bundle is None else [bundle, *items]
    plain = [one for one in all_unbundled(items) if after < sequence_of(one) <= until]
    return [row_in(one) for one in sorted(plain, key=sequence_of, reverse=not forward)]
