"""Signed addresses of files: who holds one may do one thing with one file, for some time, without a token."""

from __future__ import annotations

import base64
import binascii
from enum import StrEnum

import msgspec
from msgspec import Struct

from parley.core.attachments import Attachment
from parley.core.cluster_keys import TAG_BYTES, ClusterKeys, KeyRing
from parley.records.server_keys import ServerKeys

PURPOSE = "attachment addresses"
KEY_NAME = "attachments"
"""The server's key has this name in the store: all nodes sign with the same one."""
TOKEN_CHARS_MAX = 2_048


class Right(StrEnum):
    UPLOAD = "upload"
    DOWNLOAD = "download"
    PICTURE = "picture"
    """Smaller pictures of an image, and not the file."""


class Grant(Struct, frozen=True, array_like=True):
    """What an address allows. The size and the type are those that were announced. `session_id`: of the token
    that asked for it; empty in addresses to read from.
    """

    right: Right
    chat_id: str
    attachment_id: str
    size: int
    content_type: str
    until_ms: int
    session_id: str = ""

    def is_for(self, attachment: Attachment) -> bool:
        """Whether the file is still the one that was signed."""
        return (self.chat_id, self.attachment_id, self.size) == (
            attachment.chat_id,
            attachment.attachment_id,
            attachment.size,
        )


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Grant).decode


class AddressSigner:
    """`new_secret`: becomes the key of all servers of this store, if it has none."""

    def __init__(self, keys: ServerKeys, new_secret: str) -> None:
        self._keys = keys
        self._new_secret = new_secret
        self._ring: KeyRing | None = None

    async def _signing_ring(self) -> KeyRing:
        if self._ring is None:
            self._ring = ClusterKeys(await self._keys.key(KEY_NAME, self._new_secret)).ring(PURPOSE)
        return self._ring

    async def token(self, grant: Grant) -> str:
        data = _encode(grant)
        tag = (await self._signing_ring()).tag(data)
        return base64.urlsafe_b64encode(tag + data).decode().rstrip("=")

    async def grant(self, token: str, right: Right, now_ms: int) -> Grant | None:
        """What a token allows now; None if it is not ours, is for something else, or its time is over."""
        if len(token) > TOKEN_CHARS_MAX or not token.isascii():
            return None
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except (binascii.Error, ValueError):
            return None
        tag, data = raw[:TAG_BYTES], raw[TAG_BYTES:]
        if not (await self._signing_ring()).accepts(data, tag):
            return None
        grant = _decode(data)
        return grant if grant.right is right and now_ms < grant.until_ms else None
