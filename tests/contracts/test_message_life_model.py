"""What any device shows, however live entries and pages come, equals a naive model of what was done."""

import random

from msgspec import Struct, field

from parley.core.message_actions import MessageStates, replay
from parley.errors import Refusal
from parley.model import Draft
from parley.wire.frames import Entry
from tests.contracts.acting import add_group, add_people, decode_entry, message
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.life_world import LifeWorld, delete, edit, react, reply

STEPS = 40
DEVICES = 4
SEED = 11


class Shown(Struct):
    """One message, as the model has it."""

    content: str
    reactions: set[tuple[str, str]] = field(default_factory=set)
    answers: str = ""


class Device:
    """Follows the log: live entries as they were appended, or pages as they are stored when it asks."""

    def __init__(self) -> None:
        self.states = MessageStates()
        self.through = 0

    def hear(self, entry: Entry) -> None:
        if entry.sequence == self.through + 1:
            self.states.apply(entry)
            self.through = entry.sequence

    async def sync(self, world: LifeWorld, chat: str) -> None:
        for entry in await world.entries(chat):
            if entry.sequence > self.through:
                self.states.apply(entry)
        self.through = (await world.log.heads([chat]))[chat].sequence


async def test_every_device_shows_what_was_done(engine: Engine) -> None:
    """Whatever a device hears live and reads later, it shows what a replay of the whole log shows."""
    chance = random.Random(SEED)
    async with engine.opened() as store:
        people = await add_people(store, "ann", "ben")
        chat = await add_group(store, *people)
        world = LifeWorld(store)
        model: dict[str, Shown] = {}
        devices = [Device() for _ in range(DEVICES)]
        for step in range(STEPS):
            draft = drawn(chance, chat, people, list(model), step)
            outcome = await world.try_send(draft)
            if not isinstance(outcome, Refusal):
                apply(model, draft, outcome.message_id)
                live = await appended(store, chat, outcome.sequence, draft)
                for device in devices:
                    if chance.random() < 0.5:
                        device.hear(live)
            if chance.random() < 0.2:
                await chance.choice(devices).sync(world, chat)
        for device in devices:
            await device.sync(world, chat)
        for shown in [device.states.messages for device in devices] + [replay(await world.entries(chat))]:
            assert {key: told(shown[key].entry) for key in shown} == {
                key: one.content for key, one in model.items()
            }
            for key, one in model.items():
                found = {(who, r.reaction) for r in shown[key].reactions for who in r.user_ids}
                assert found == one.reactions
        for key, one in model.items():
            now = await world.life.message(people[0], chat, key)
            assert {(who, r.reaction) for r in now.reactions for who in r.user_ids} == one.reactions
            answers = [other for other in model.values() if other.answers == key and other.content != "gone"]
            assert now.reply_count == len(answers)
        assert store.breaches() == []


def told(entry: Entry) -> str:
    return "gone" if entry.deleted is True else entry.content


async def appended(store: OpenStore, chat: str, sequence: int, draft: Draft) -> Entry:
    """The entry as it went out live: with the body that was sent."""
    stored = decode_entry((await store.log.read(chat, sequence - 1, 1)).entries[0])
    stored.content, stored.deleted = draft.content, False
    return stored


def drawn(chance: random.Random, chat: str, people: list[str], keys: list[str], step: int) -> Draft:
    who = chance.choice(people)
    if not keys or chance.random() < 0.25:
        return message(chat, who, f"text {step}")
    key = chance.choice(keys)
    match chance.randrange(5):
        case 0 | 1:
            return edit(chat, who, key, f"edit {step}")
        case 2:
            return delete(chat, who, key)
        case 3:
            return reply(chat, who, key, f"reply {step}")
        case _:
            return react(chat, who, key, chance.choice("xy"), chance.random() < 0.7)


def apply(model: dict[str, Shown], draft: Draft, message_id: str) -> None:
    if draft.kind == "message":
        model[message_id] = Shown(draft.content, answers=draft.reply_to or "")
        return
    assert draft.target_id is not None
    target = model[draft.target_id]
    if draft.kind == "edit":
        target.content = draft.content
    elif draft.kind == "delete":
        target.content, target.reactions = "gone", set()
    else:
        change = target.reactions.add if draft.on else target.reactions.discard
        change((draft.sender_id, draft.content))
