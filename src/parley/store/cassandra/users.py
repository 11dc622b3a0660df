"""People as rows: a record that is compared as a whole by its version, and when they were last seen."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from parley.model import AccountState, User
from parley.store.cassandra.connection import Row

encode_user = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(User).decode


def user_in(row: Row) -> User:
    user = _decode(row["record"])
    is_seen = row["last_seen"] is not None and user.state is not AccountState.DELETED
    return replace(user, last_seen=row["last_seen"]) if is_seen else user
