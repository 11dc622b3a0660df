"""What every body of an HTTP request is, and everything in it."""

from __future__ import annotations

from msgspec import Struct


class RequestBody(Struct, forbid_unknown_fields=True):
    """A field that the server does not know is refused by its name: a slip of the pen must not become a
    default in silence. (Frames ignore what they do not know, so that old and new may talk.)
    """
