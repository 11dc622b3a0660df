"""Bodies of the three routes that read the cookie of a page."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from parley.wire.request_body import RequestBody

PageName = Literal["chat", "console"]


class NewPageSession(RequestBody):
    """A person signs in on a page. `read_only`: from this session of the console nothing can be changed."""

    username: str
    password: str
    device_id: str
    device_name: str = ""
    read_only: bool = False


class PageRefresh(RequestBody):
    """A page asks for the next token.

    `key`: what the sign-in to the console answered. `active`: whether a person was at the page since the last
    time. `password`: yours, where something asks for it again.
    """

    key: str = ""
    active: bool = True
    password: str = ""


class PageSessionGranted(Struct):
    """A token for the memory of a page; the cookie is in a header. `key`: for the console's tab alone."""

    access_token: str
    expires_in: int
    user_id: str
    session_id: str
    device_id: str
    expires_at: str
    read_only: bool
    key: str | UnsetType = UNSET
