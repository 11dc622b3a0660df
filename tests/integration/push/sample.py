"""A notification and devices, for the tests of every provider."""

from msgspec.structs import replace

from parley.core.push_devices import Provider, PushDevice
from parley.push.ports import Notification

NOTIFICATION = Notification(
    event_id="evt_01JHV3Z8M4QK7N5X2R9T6WBCDG",
    collapse_id="Zm9vYmFyYmF6cXV4Zm9vYmFy",
    chat_id="chat_01JHV3Z8M4QK7N5X2R9T6WBCDE",
    message_id="msg_01JHV3Z8M4QK7N5X2R9T6WBCDG",
    sender_id="user_01JHV3Z8M4QK7N5X2R9T6WBCDF",
    sequence=7,
    created_at="2026-01-30T14:30:00.000Z",
    title="Ann in Sailing",
    content="hello 👋",
    badge=3,
)
WITHOUT_PREVIEW = replace(NOTIFICATION, title="New message", content=None)
REPEATED = replace(NOTIFICATION, is_repeated=True)


def device(provider: Provider, address: str, public_key: str = "", auth: str = "") -> PushDevice:
    return PushDevice(
        user_id="user_b",
        device_id="phone",
        provider=provider,
        address=address,
        public_key=public_key,
        auth=auth,
        created_ms=0,
    )
