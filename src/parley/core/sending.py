"""Whether a message may be sent at all: what can be decided from the request alone."""

from __future__ import annotations

from datetime import datetime

from parley import ids
from parley.errors import BAD_REQUEST, TOO_LARGE, Refusal
from parley.model import Draft
from parley.wire.frames import SendMessage
from parley.wire.limits import CONTENT_TYPE_LETTERS_MAX, MESSAGE_BYTES_MAX, TIME_LETTERS_MAX

NO_CLIENT_ID = BAD_REQUEST.because(
    "client_message_id must be a UUIDv4, made once per message and kept for retries"
)
NO_PREDECESSOR = BAD_REQUEST.because("after_client_message_id must be the UUIDv4 of an earlier message")
NO_CONTENT_TYPE = BAD_REQUEST.because("content_type must be a media type such as text/plain")
NO_TIME = BAD_REQUEST.because("display_time must be an ISO 8601 time")
MESSAGE_TOO_LARGE = TOO_LARGE.because(f"content is larger than {MESSAGE_BYTES_MAX} bytes in UTF-8")


def check_send(request: SendMessage, sender_id: str, request_id: str = "") -> Draft | Refusal:
    """The draft of a message, or what is wrong with it. Membership is decided with the write."""
    key = ids.client_key(request.client_message_id)
    if key is None:
        return NO_CLIENT_ID
    content = request.content
    if len(content) > MESSAGE_BYTES_MAX // 4 and len(content.encode()) > MESSAGE_BYTES_MAX:
        return MESSAGE_TOO_LARGE
    content_type = request.content_type
    if content_type != "text/plain" and not is_content_type(content_type):
        return NO_CONTENT_TYPE
    if request.display_time is not None and not is_time(request.display_time):
        return NO_TIME
    after_key = None
    if request.after_client_message_id is not None:
        after_key = ids.client_key(request.after_client_message_id)
        if after_key is None:
            return NO_PREDECESSOR
    return Draft(
        chat_id=request.chat,
        sender_id=sender_id,
        content=content,
        content_type=content_type,
        client_message_id=request.client_message_id,
        client_key=key,
        display_time=request.display_time,
        after_key=after_key,
        request_id=request_id,
    )


def is_content_type(text: str) -> bool:
    return (
        3 <= len(text) <= CONTENT_TYPE_LETTERS_MAX and "/" in text and text.isascii() and text.isprintable()
    )


def is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) <= TIME_LETTERS_MAX
