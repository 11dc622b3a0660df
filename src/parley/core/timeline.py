"""What happened to one message, told from what is known of it. Pure: see docs/timeline.md.

Nothing is stored for it. The log says what was written, the positions of devices and people say who has it,
and each node remembers for a while what it sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from parley.model import AccountState, Action, StepName

MUTED = "the chat was muted: no push"
BLOCKED = "has blocked the sender: no push"
NOWHERE = "is logged in on no device"
NOT_CONNECTED = "was not connected"
LATER = "this time or before"
ONE_PROCESS = "the log is the topic on one machine"


ORDER = {name: place for place, name in enumerate(StepName)}


class Step(Struct, frozen=True):
    """One thing that happened to a message, or did not: `detail` says why."""

    at_ms: int
    name: StepName
    node: str = ""
    user_id: str = ""
    device_id: str = ""
    detail: str = ""


class ExplainedMessage(Struct, frozen=True):
    """The message that is asked about."""

    message_id: str
    chat_id: str
    sequence: int
    sender_id: str
    created_ms: int


class TraceQuestion(Struct, frozen=True):
    """What a node is asked: what it did with one position, and to which devices of these people."""

    chat_id: str
    sequence: int
    user_ids: list[str]


class NodeTrace(Struct, frozen=True, kw_only=True):
    """What a node remembers of one position. It remembers everything since `since_ms`.

    `accepted_ms`: this node appended it. `published_ms`: this node put it on the bus, then or, unless
    `is_published_then`, before. `sent_ms`: it went to the clients here, of whom `devices` are asked about.
    """

    node_id: str
    since_ms: int
    accepted_ms: int | None = None
    published_ms: int | None = None
    is_published_then: bool = True
    sent_ms: int | None = None
    devices: list[tuple[str, str]] = []


class RecipientFacts(Struct, frozen=True, kw_only=True):
    """A member, how far they and each of their devices are, and what keeps the message from them."""

    user_id: str
    joined_sequence: int
    delivered_up_to: int = 0
    delivered_ms: int | None = None
    read_up_to: int = 0
    read_ms: int | None = None
    devices: dict[str, int] = {}
    muted_until_ms: int | None = None
    has_blocked: bool = False
    state: AccountState = AccountState.ACTIVE


class Departure(Struct, frozen=True):
    """A person left a chat, or was removed, at this position."""

    user_id: str
    action: Action
    sequence: int
    at_ms: int


class TimelineFacts(Struct, frozen=True, kw_only=True):
    """Everything that is known. `traces` is empty where no node was asked; `silent`: nodes that were, and why
    they said nothing. `is_published`: None on a bus of one process. `others`: what other sources tell.
    """

    message: ExplainedMessage
    recipients: list[RecipientFacts]
    departures: list[Departure]
    traces: list[NodeTrace]
    silent: dict[str, str]
    is_published: bool | None
    others: list[Step]
    more_members: int
    asked_ms: int


def timeline_of(facts: TimelineFacts) -> list[Step]:
    """Every step, in the order of their times."""
    steps = [*_steps_of_server(facts), *facts.others, *_steps_of_departures(facts)]
    for recipient in facts.recipients:
        steps += _steps_of_recipient(facts, recipient)
    return sorted(steps, key=lambda step: (step.at_ms, ORDER[step.name]))


def _steps_of_server(facts: TimelineFacts) -> Iterator[Step]:
    message = facts.message
    appended = [trace for trace in facts.traces if trace.accepted_ms is not None]
    for trace in appended:
        yield Step(min(trace.accepted_ms or 0, message.created_ms), StepName.ACCEPTED, trace.node_id)
    node = appended[0].node_id if appended else ""
    yield Step(message.created_ms, StepName.STORED, node, detail=f"at position {message.sequence}")
    yield from _published(facts)
    for trace in facts.traces:
        if trace.sent_ms is not None:
            yield Step(trace.sent_ms, StepName.ROUTED, trace.node_id)
            for user_id, device_id in trace.devices:
                if _was_member(facts, user_id):
                    yield Step(trace.sent_ms, StepName.SENT, trace.node_id, user_id, device_id)
    for node, why in facts.silent.items():
        detail = f"did not say what it sent: {why}"
        yield Step(facts.asked_ms, StepName.SKIPPED, node, detail=detail)
    if facts.more_members:
        detail = f"{facts.more_members} more members are not shown; ask for one by user_id"
        yield Step(facts.asked_ms, StepName.SKIPPED, detail=detail)


def _published(facts: TimelineFacts) -> Iterator[Step]:
    """The marks say whether; the node that did it remembers when."""
    if facts.is_published is None:
        yield Step(facts.message.created_ms, StepName.PUBLISHED, detail=ONE_PROCESS)
        return
    known = [trace for trace in facts.traces if trace.published_ms is not None]
    for trace in known:
        detail = "" if trace.is_published_then else LATER
        yield Step(trace.published_ms or 0, StepName.PUBLISHED, trace.node_id, detail=detail)
    if facts.is_published and not known:
        detail = "it is on the bus; no node remembers since when"
        yield Step(facts.message.created_ms, StepName.PUBLISHED, detail=detail)
    elif not facts.is_published and not known:
        detail = "it is not on the bus yet; the outbox has it"
        yield Step(facts.asked_ms, StepName.SKIPPED, detail=detail)


def _was_member(facts: TimelineFacts, user_id: str) -> bool:
    sequence = facts.message.sequence
    return any(one.user_id == user_id and one.joined_sequence < sequence for one in facts.recipients) or any(
        one.user_id == user_id and one.sequence > sequence for one in facts.departures
    )


def _steps_of_recipient(facts: TimelineFacts, one: RecipientFacts) -> Iterator[Step]:
    sequence, user_id = facts.message.sequence, one.user_id
    if one.joined_sequence >= sequence:
        yield _skipped(facts, user_id, f"joined at {one.joined_sequence}, not before it")
        return
    if one.read_up_to >= sequence and one.read_ms is not None:
        detail = _up_to(one.read_up_to, sequence)
        yield Step(one.read_ms, StepName.READ, user_id=user_id, detail=detail)
    yield from _acknowledged(facts, one)
    if user_id == facts.message.sender_id:
        return
    if one.state is not AccountState.ACTIVE:
        yield _skipped(facts, user_id, f"the account is {one.state.value}")
    elif not one.devices and one.delivered_up_to < sequence:
        yield _skipped(facts, user_id, NOWHERE)
    if one.muted_until_ms is not None and one.muted_until_ms > facts.message.created_ms:
        yield _skipped(facts, user_id, MUTED)
    if one.has_blocked:
        yield _skipped(facts, user_id, BLOCKED)


def _acknowledged(facts: TimelineFacts, one: RecipientFacts) -> Iterator[Step]:
    """Positions of devices have no time of their own: that of the person is this time or a later one."""
    sequence, has_it = facts.message.sequence, one.delivered_up_to >= facts.message.sequence
    at_ms = one.delivered_ms if has_it and one.delivered_ms is not None else facts.asked_ms
    sent = {device for trace in facts.traces for device in trace.devices}
    devices = sorted(one.devices.items())
    for device_id, position in devices:
        if position >= sequence:
            detail = _up_to(max(position, one.delivered_up_to), sequence)
            yield Step(at_ms, StepName.ACKNOWLEDGED, "", one.user_id, device_id, detail)
        elif (one.user_id, device_id) not in sent and one.user_id != facts.message.sender_id:
            yield _skipped(facts, one.user_id, _why_not_sent(facts, position), device_id)
    if has_it and not any(position >= sequence for _, position in devices):
        detail = _up_to(one.delivered_up_to, sequence)
        yield Step(at_ms, StepName.ACKNOWLEDGED, "", one.user_id, detail=detail)


def _why_not_sent(facts: TimelineFacts, position: int) -> str:
    since_ms = max((trace.since_ms for trace in facts.traces), default=facts.asked_ms)
    if facts.silent or since_ms > facts.message.created_ms:
        return f"is at position {position}; no node remembers whether it was sent"
    return f"{NOT_CONNECTED}; is at position {position} and reads the rest when it connects"


def _steps_of_departures(facts: TimelineFacts) -> Iterator[Step]:
    """Only those who are not members again."""
    members = {one.user_id for one in facts.recipients}
    for one in facts.departures:
        if one.user_id not in members:
            when = "before" if one.sequence < facts.message.sequence else "after"
            detail = f"{one.action.value} {when} it, at {one.sequence}"
            yield Step(one.at_ms, StepName.SKIPPED, user_id=one.user_id, detail=detail)


def _skipped(facts: TimelineFacts, user_id: str, why: str, device_id: str = "") -> Step:
    return Step(facts.message.created_ms, StepName.SKIPPED, "", user_id, device_id, why)


def _up_to(position: int, sequence: int) -> str:
    return "" if position == sequence else f"up to {position}: {LATER}"
