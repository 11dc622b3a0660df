"""The log on DynamoDB under random faults of every kind, over several nodes, with senders who never give up.

PARLEY_SIMULATE_ROUNDS sets how many rounds there are; PARLEY_SIMULATE_SEED repeats a run's
choices (not its timing). Whatever was acknowledged is stored once, where it was said to be.
"""

import asyncio
from random import Random

import pytest

from parley.errors import Refusal
from parley.model import Action, Appended, Draft
from parley.store.dynamodb import append
from parley.store.dynamodb.driver import Fault, Faults, Request
from parley.testing.dynamodb_faults import RandomFaults
from parley.wire.frames import Entry
from tests.contracts.acting import change, message, new_id, outcome, read_all, resolved
from tests.contracts.dynamodb_nodes import refuse
from tests.contracts.dynamodb_world import Node, world
from tests.seeds import ROUNDS, SEED

ROUNDS_PER_TURN = 20
TURNS = max(1, ROUNDS // ROUNDS_PER_TURN)
NODES = 3
MESSAGES = 10
WINDOW = 3
TOGGLES = 3
SHARES = {
    "throttle": 0.05,
    "transact_conflict": 0.15,
    "timeout_done": 0.06,
    "timeout_not_done": 0.06,
    "server_error": 0.05,
    "unprocessed": 0.2,
    "torn_page": 0.25,
}

KEYS_REFUSED_SHARE = 0.3


class Sender:
    """One device: pipelines a line of messages, each naming the one before, until each has its answer."""

    def __init__(self, name: str, user_id: str, random: Random) -> None:
        self.name = name
        self.user_id = user_id
        self._random = random
        self.line: list[str] = [new_id() for _ in range(MESSAGES)]
        self.places: dict[str, int] = {}
        self.refused: set[str] = set()

    def content(self, client_id: str) -> str:
        return f"{self.name} {self.line.index(client_id)}"

    def draft(self, chat: str, client_id: str, before: str) -> Draft:
        return message(chat, self.user_id, self.content(client_id), client_id, before)

    async def run(self, nodes: list[Node]) -> None:
        while waiting := [
            each for each in self.line if each not in self.places | dict.fromkeys(self.refused)
        ]:
            window = waiting[: self._random.randint(1, WINDOW)]
            drafts = [
                self.draft(nodes[0].chat, each, before)
                for each, before in zip(window, ["", *window], strict=False)
            ]
            result = await self._random.choice(nodes).log.append(drafts)
            for client_id, answer in zip(window, result.outcomes, strict=True):
                self.hear(client_id, answer)

    def hear(self, client_id: str, answer: Appended | Refusal) -> None:
        if isinstance(answer, Appended):
            assert self.places.setdefault(client_id, answer.sequence) == answer.sequence
            assert not answer.conflict
        elif not answer.temporary:
            assert answer.code == "not_a_member"
            self.refused.add(client_id)


class KeysRefused:
    """Other faults, and a share of the keys is not written after the transaction of its entries."""

    def __init__(self, others: Faults, random: Random) -> None:
        self._others = others
        self._random = random

    def __call__(self, operation: str, request: Request) -> Fault | None:
        if operation == "BatchWriteItem" and self._random.random() < KEYS_REFUSED_SHARE:
            return refuse
        return self._others(operation, request)


async def toggle(nodes: list[Node], random: Random) -> None:
    """Ann removes ben and takes him back, through any node, until he is back for good."""
    chat, ann, ben = nodes[0].chat, nodes[0].ann, nodes[0].ben
    for action in [Action.REMOVED, Action.JOINED] * TOGGLES:
        while True:
            answer = await outcome(random.choice(nodes), change(chat, ann, action, ben))
            if isinstance(answer, Appended) or not answer.temporary:
                break  # refused for good: an attempt whose answer was lost has done it


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", range(TURNS))
@pytest.mark.parametrize("mode", ["atomic", "atomic, keys apart", "two_phase"])
async def test_what_was_acknowledged_is_stored_once_where_it_was_said(
    mode: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under every fault at once: a dense log, acks that hold, refusals that hold, and each sender's order."""
    random = Random(f"{SEED} {mode} {number}")
    mode, _, is_apart = mode.partition(", ")
    if is_apart:  # these batches are small
        monkeypatch.setattr(append, "KEYS_APART_MIN", 1)
    async with world(mode, NODES + 1) as (*nodes, witness):
        faults: Faults = RandomFaults(SHARES, random.randrange(2**31))
        if is_apart:
            faults = KeysRefused(faults, random)
        for node in nodes:
            node.faults.now = faults
        people = {"ann": witness.ann, "ann's phone": witness.ann, "ben": witness.ben}
        senders = [Sender(name, user_id, random) for name, user_id in people.items()]
        await asyncio.gather(toggle(nodes, random), *(sender.run(nodes) for sender in senders))
        page = await witness.log.read(witness.chat, 0, 1000)
        assert page.complete
        assert resolved(page) == list(range(1, page.head + 1))
        entries = await read_all(witness, witness.chat)
        for sender in senders:
            assert_kept(sender, entries)
        assert_silent_while_removed(witness.ben, entries)


def assert_kept(sender: Sender, entries: list[Entry]) -> None:
    """Every ack and every refusal of one sender, and the order of what is stored."""
    own = [entry for entry in entries if entry.client_message_id in sender.line]
    assert {str(entry.client_message_id): entry.sequence for entry in own} == sender.places
    assert len(own) == len(sender.places) == MESSAGES - len(sender.refused)
    stored = [each for each in sender.line if each in sender.places]
    assert [entry.client_message_id for entry in own] == stored
    assert [entry.content for entry in own] == [sender.content(each) for each in stored]


def assert_silent_while_removed(user_id: str, entries: list[Entry]) -> None:
    is_in = True
    for entry in entries:
        if entry.kind == "member":
            is_in = '"joined"' in entry.content
        elif entry.sender_id == user_id:
            assert is_in, f"{entry.sequence} was written after a removal"
    assert is_in
