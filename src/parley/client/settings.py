"""What `connect` was told."""

from __future__ import annotations

from random import Random

from msgspec import Struct

from parley.client.timing import Timing
from parley.clock import Clock
from parley.wire.client_codec import ClientCodec


class Settings(Struct, frozen=True, kw_only=True):
    url: str
    token: str
    device_id: str | None
    outbox: str | None
    codec: ClientCodec
    live: bool
    start_offline: bool
    timing: Timing
    clock: Clock
    random: Random
