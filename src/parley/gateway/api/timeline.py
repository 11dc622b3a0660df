"""What became of a message. It needs an operator's token."""

from __future__ import annotations

from msgspec import UNSET

from parley.clock import iso
from parley.core.timeline import Step
from parley.errors import FORBIDDEN, NOT_FOUND
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Parameter, Routes
from parley.traces.timeline import Timeline
from parley.wire import bodies

READ = "message.explain"
"""In the audit log: an operator saw what became of a message, and who has read it."""

routes = Routes("Operators")


@routes.route(
    "GET",
    "/v1/admin/messages/{message_id}/timeline",
    "What became of a message",
    {200: bodies.MessageTimeline},
    query=(
        Parameter("user_id", str, "Only what concerns this member; the first 100 without it."),
        Parameter("chat_id", str, "The chat that it is in, if you know: then no other one is looked at."),
    ),
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def show_timeline(call: Call) -> Answer:
    """Every step with its time, and why not, where not. What was stored, acknowledged and read is known for
    good; each node remembers for a while what it sent, and a node that does not say is named in a step. It is
    recorded who looked.
    """
    message_id, user_id = call.path("message_id"), call.text("user_id")
    async with call.services.user_admin.audited(call.acting, READ, message_id, user_id):
        return 200, timeline_body(
            await call.services.timeline.explain(message_id, user_id, call.text("chat_id"))
        )


def timeline_body(timeline: Timeline) -> bodies.MessageTimeline:
    message = timeline.message
    return bodies.MessageTimeline(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        steps=[_step(step) for step in timeline.steps],
    )


def _step(step: Step) -> bodies.TimelineStep:
    return bodies.TimelineStep(
        at=iso(step.at_ms),
        step=step.name,
        node=step.node or UNSET,
        user_id=step.user_id or UNSET,
        device_id=step.device_id or UNSET,
        detail=step.detail or UNSET,
    )
