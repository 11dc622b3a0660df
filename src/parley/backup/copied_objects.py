"""Objects of another place that a backup holds, too: each is copied once, because none ever changes.

A key in the backup is a prefix and the key that the object has at its own place.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterable

import msgspec

from parley.backup.manifests import BackupDamaged, Part, check_part
from parley.objects.ports import ObjectExists, ObjectMissing, Objects

decode_list = msgspec.json.Decoder(list[Part]).decode


def packed_list(parts: Iterable[Part]) -> bytes:
    """The objects of a backup that its manifest does not name one by one."""
    return gzip.compress(msgspec.json.encode(list(parts)), mtime=0)


def unpacked_list(part: Part, data: bytes, prefix: str) -> list[Part]:
    """BackupDamaged unless it is a list of objects below this prefix."""
    try:
        found = decode_list(gzip.decompress(data))
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise BackupDamaged(f"{part.key} cannot be read: {error}") from error
    for one in found:
        if not one.key.startswith(prefix):
            raise BackupDamaged(f"{part.key} names {one.key}, which is not below {prefix}")
    return found


async def sizes_at(objects: Objects, prefix: str) -> dict[str, int]:
    """What is there, by key."""
    return {stored.key: stored.size_bytes for stored in await objects.find(prefix)}


async def read_part(objects: Objects, part: Part) -> bytes:
    """BackupDamaged unless it is there, as it was written."""
    try:
        data = await objects.read(part.key)
    except ObjectMissing as error:
        raise BackupDamaged(str(error)) from error
    check_part(part, data)
    return data


async def create_part(objects: Objects, part: Part, key: str, data: bytes) -> None:
    """Write an object and read it back. BackupDamaged if one of this name is there, and is another."""
    with contextlib.suppress(ObjectExists):  # of an earlier attempt; what it is, is looked at now
        await objects.create(key, data)
    check_part(part, await objects.read(key))


async def put_back(kept: Objects, parts: Iterable[Part], prefix: str, place: Objects) -> int:
    """Write the objects to their own place, each checked and read back; returns how many. May be repeated.

    BackupDamaged if one of this name is there, and is another.
    """
    count = 0
    for part in parts:
        await create_part(place, part, part.key.removeprefix(prefix), await read_part(kept, part))
        count += 1
    return count
