"""Lists of JSON objects in a ZIP file, read object by object and within bounds.

An archive is somebody else's file. What it says of its sizes is checked before anything is unpacked, and no
more than one object of a list is in memory at once, unless the caller keeps them.
"""

from __future__ import annotations

import codecs
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from parley.migration.workspaces import ImportFailed
from parley.wire.limits import KIB, MIB

MEMBER_BYTES_MAX = 128 * MIB
"""Of one file in the archive, unpacked."""
RATIO_MAX = 100
"""How much larger a file may be than in the archive; JSON of messages is about 10 to 30 times larger."""
RATIO_FROM_BYTES = 1 * MIB
"""A smaller file may be as repetitive as it is."""
OBJECT_CHARS_MAX = 1 * MIB
READ_CHARS = 64 * KIB
BETWEEN = " \t\r\n,"
UNREADABLE = (ValueError, RecursionError, BadZipFile, EOFError, OSError, RuntimeError, zlib.error)
"""What reading a file of somebody else raises: no JSON, no ZIP, damaged, encrypted."""

Json = dict[str, Any]


class ZippedLists:
    """An archive that was opened. ImportFailed if it is none, or larger than its bounds."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = ZipFile(path)
            packed_max = path.stat().st_size
        except (BadZipFile, OSError) as error:
            raise ImportFailed(f"{path} is no ZIP file: {error}") from error
        self._members = {one.filename: one for one in self._zip.infolist() if one.filename.endswith(".json")}
        if sum(one.compress_size for one in self._members.values()) > packed_max:
            raise ImportFailed(f"{path} holds the same bytes several times")
        self.names = sorted(self._members)

    def objects(self, name: str) -> Iterator[tuple[Json, bytes]]:
        """Each object of a list, and its JSON; nothing if there is no such file."""
        member = self._members.get(name)
        if member is None:
            return
        check_packing(member)
        if member.file_size > MEMBER_BYTES_MAX:
            raise ImportFailed(f"{name} has more than {MEMBER_BYTES_MAX // MIB} MiB")
        try:
            with self._zip.open(member) as file:
                yield from _objects(codecs.getreader("utf-8-sig")(file), name)
        except UNREADABLE as error:
            raise ImportFailed(f"{name} cannot be read: {error}") from error


def check_packing(member: ZipInfo) -> None:
    """ImportFailed if unpacking it could give far more than the archive holds."""
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ImportFailed(f"{member.filename} is packed in a way that exports are not")
    if member.file_size > max(RATIO_FROM_BYTES, RATIO_MAX * member.compress_size):
        raise ImportFailed(f"{member.filename} is more than {RATIO_MAX} times larger than in the archive")


def _objects(text: codecs.StreamReader, name: str) -> Iterator[tuple[Json, bytes]]:
    decoder = json.JSONDecoder()
    buffer, at = text.read(READ_CHARS).lstrip(), 1
    if not buffer.startswith("["):
        raise ImportFailed(f"{name} is no list")
    while True:
        while at < len(buffer) and buffer[at] in BETWEEN:
            at += 1
        if buffer.startswith("]", at):
            return
        try:
            found, end = decoder.raw_decode(buffer, at)
        except ValueError:
            more = text.read(max(READ_CHARS, len(buffer) - at))
            if not more or len(buffer) - at > OBJECT_CHARS_MAX:
                raise
            buffer, at = buffer[at:] + more, 0
            continue
        if isinstance(found, dict):
            yield found, buffer[at:end].encode("utf-8", "surrogatepass")
        at = end
