"""The bodies of HTTP keep their bytes: `tests/wire_vectors/http` pins every one of them."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from parley.wire import (
    attachment_bodies,
    bodies,
    frames,
    identity_bodies,
    operator_bodies,
    people_bodies,
    search_bodies,
)
from tests.wire_vectors import write

VECTORS = json.loads((write.FOLDER / "http/bodies.json").read_text(encoding="ascii"))["bodies"]
MODULES = (bodies, identity_bodies, people_bodies, search_bodies, attachment_bodies, operator_bodies)
KINDS: dict[str, Any] = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
} | {"Receipt": frames.Receipt, "Batch": frames.Batch[Raw]}
IN_OTHERS = {
    *("ConnectionInfo", "JobRun", "BackupInfo", "PushProviderInfo"),
    *("DeadLetterHour", "DeadLetterJobInfo", "DeadLetterRecipient"),
    *("SessionInfo", "Device", "Related", "MemberInfo", "UserSession", "InvitationInfo"),
    *("JobInfo", "NodeInfo", "TopicInfo", "GroupLag", "TimelineStep", "InvariantBreach"),
    *(
        "DeadLetterInfo",
        "DeadLetterEvent",
        "DeadLetterGroup",
        "DeadLetterFilter",
        "OriginalMessage",
        "WebhookInfo",
    ),
    *("PushKeys", "PushSubscription", "QuietHoursChange", "Reaction"),
    *(
        "PersonOfChat",
        "ListedChatInfo",
        "DevicePosition",
        "MemberPosition",
        "LogLine",
        "VoidRange",
        "PersonChat",
        "PersonDevice",
    ),
    *("ApiTokenInfo", "LinkInfo", "ReportInfo", "SearchHit"),
}


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in VECTORS])
def test_a_body_is_written_to_the_byte(vector: dict[str, str]) -> None:
    """Names, order and omitted fields of every body are those of the vector."""
    body = msgspec.json.decode(vector["json"], type=KINDS[vector["body"]])
    assert msgspec.json.encode(body).decode() == vector["json"]


def test_every_body_has_a_vector() -> None:
    """No body is left without a vector, and no vector is of a body that is gone."""
    assert {vector["body"] for vector in VECTORS} | IN_OTHERS == set(KINDS)


def test_the_answers_to_a_send_and_a_sync_are_their_frames_without_the_envelope() -> None:
    """Over HTTP a receipt and a batch are the frames `ack` and `message_batch` without `type` and `re`."""
    for tag, kind in (("ack", frames.Receipt), ("message_batch", frames.Batch[frames.Entry])):
        group = json.loads((write.FOLDER / f"server.{tag}.json").read_text(encoding="ascii"))
        for vector in group["vectors"]:
            expected = {name: value for name, value in vector["value"].items() if name not in ("type", "re")}
            body: Any = msgspec.json.decode(json.dumps(expected), type=kind)
            assert json.loads(msgspec.json.encode(body)) == expected
