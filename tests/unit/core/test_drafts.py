"""What can be decided about a message from its request alone."""

import uuid
from typing import Any

import pytest

from parley.core.session import (
    MESSAGE_TOO_LARGE,
    NO_CLIENT_ID,
    NO_CONTENT_TYPE,
    NO_DISPLAY_TIME,
    NO_MENTIONS,
    NO_PREDECESSOR,
    check_send,
)
from parley.errors import Refusal
from parley.model import Draft
from parley.wire.frames import SendMessage
from parley.wire.limits import MENTIONS_MAX, MESSAGE_BYTES_MAX

ID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
EARLIER = "16fd2706-8baf-433b-82eb-8c7fada847da"


def request(**changed: Any) -> SendMessage:
    return SendMessage(**{"chat_id": "chat_1", "client_message_id": ID, "content": "hi", **changed})


def test_a_draft_says_what_the_request_said() -> None:
    """Ids become keys, the predecessor's too, and nothing is lost on the way."""
    asked = request(
        after_client_message_id=EARLIER,
        display_time="2026-01-01T10:00:00Z",
        content_type="text/markdown",
        mentions=["user_2"],
    )
    assert check_send(asked, "user_1", "con_1.2") == Draft(
        chat_id="chat_1",
        sender_id="user_1",
        content="hi",
        content_type="text/markdown",
        client_message_id=ID,
        client_key=uuid.UUID(ID).bytes,
        display_time="2026-01-01T10:00:00Z",
        after_key=uuid.UUID(EARLIER).bytes,
        request_id="con_1.2",
        mentions=("user_2",),
    )


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"client_message_id": "hi"}, NO_CLIENT_ID),
        ({"client_message_id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, NO_CLIENT_ID),
        ({"after_client_message_id": ""}, NO_PREDECESSOR),
        ({"after_client_message_id": "hi"}, NO_PREDECESSOR),
        ({"content": "x" * (MESSAGE_BYTES_MAX + 1)}, MESSAGE_TOO_LARGE),
        ({"content": "€" * (MESSAGE_BYTES_MAX // 3 + 1)}, MESSAGE_TOO_LARGE),
        ({"content_type": "text"}, NO_CONTENT_TYPE),
        ({"display_time": "yesterday"}, NO_DISPLAY_TIME),
        ({"mentions": [f"user_{n}" for n in range(MENTIONS_MAX + 1)]}, NO_MENTIONS),
        ({"mentions": ["user_1", ""]}, NO_MENTIONS),
        ({"mentions": ["user_\x1f"]}, NO_MENTIONS),
    ],
)
def test_what_cannot_be_sent_is_refused(changed: dict[str, Any], refusal: Refusal) -> None:
    """Each mistake has words of its own."""
    assert check_send(request(**changed), "user_1") == refusal


@pytest.mark.parametrize("content", ["", "x" * MESSAGE_BYTES_MAX, "\U0001f600" * (MESSAGE_BYTES_MAX // 4)])
def test_content_up_to_the_limit_may_be_sent(content: str) -> None:
    """Exactly the largest message is still one."""
    assert isinstance(check_send(request(content=content), "user_1"), Draft)
