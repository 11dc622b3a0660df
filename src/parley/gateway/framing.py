"""WebSocket frames as bytes. The server's frames are unmasked and whole, so one buffer serves everybody."""

from __future__ import annotations

FIN_TEXT = 0x81
FIN_BINARY = 0x82


def framed(payload: bytes, binary: bool) -> bytes:
    """The header of RFC 6455 section 5.2 and the payload, ready for any number of transports."""
    first = FIN_BINARY if binary else FIN_TEXT
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65_536:
        return bytes((first, 126, size >> 8, size & 255)) + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload
