"""What happens to people, a step at a time, on a network that hurts; and whole lives by a seed."""

from random import Random

from parley.errors import OUTCOME_UNKNOWN, RATE_LIMITED, STORE_UNAVAILABLE
from tests.model_server.server import FORBIDDEN_CONTENT
from tests.model_server.world import CHAT_IDS, DEVICES, GUEST, MakeCore, Person, World

STEPS_MIN, STEPS_MAX = 20, 120

ORDINARY = [
    "send",
    "send",
    "send three",
    "flow",
    "flow",
    "up",
    "up",
    "up",
    "down",
    "down",
    "down",
    "take",
    "take all",
    "read",
    "read elsewhere",
    "snapshot",
    "type",
    "mute",
    "appear or vanish",
    "take all",
    "reply",
    *["react"] * 3,
    *["edit"] * 3,
    *["delete"] * 2,
]
"""What a good day is made of; after each, the shell takes its turn."""
HURTFUL = [
    "send forbidden",
    "cut",
    "away or back",
    "crash",
    "lose up",
    "lose down",
    "repeat up",
    "repeat down",
    "swap down",
    "slow disk",
    "time",
    "void",
    "refuse",
    "refuse anything",
    "unheard",
    "come or go",
    "leave or join",
    "rest",
    "reopen",
    "unknown, stored",
    "unknown, not stored",
]
STARTING_OVER = ["start over", "start over"]
ON_A_GOOD_LINE = [
    "void",
    "cut",
    "away or back",
    "away or back",
    "crash",
    "time",
    "rest",
    "rest",
    "read",
    "read elsewhere",
    "come or go",
    "come or go",
    "leave or join",
    "leave or join",
    "unheard",
    "refuse anything",
    "reopen",
    "snapshot",
    "flow",
]
"""What may happen without anything being lost."""


def happen(world: World, person: Person, chat_id: str, what: str) -> None:
    match what:
        case "send":
            person.send(chat_id, f"{person.user_id} {chat_id}")
        case "send three":
            for number in range(3):
                person.send(chat_id, f"{person.user_id} {chat_id} {number}")
        case "flow":
            while world.up(person) or world.down(person):
                pass
        case "up":
            world.up(person)
        case "down":
            world.down(person)
        case "take":
            person.take(chat_id)
        case "take all":
            while person.take(chat_id):
                pass
        case "read":
            person.read(chat_id)
        case "read elsewhere":
            world.read_elsewhere(person, chat_id)
        case "snapshot":
            world.snapshot(person)
        case "type":
            person.core.start_typing(person.core.chat(chat_id), world.now_ms)
        case "mute":
            world.mute(chat_id, person.user_id)
        case "appear or vanish":
            world.appear_or_vanish()
        case "reopen":
            person.reopen(chat_id)
        case "reply" | "react" | "edit" | "delete":
            person.amend(chat_id, what)
        case "rest":
            world.settle(cut=False)
        case _:
            hurt(world, person, chat_id, what)
    for member in world.people:
        member.turn(disk_works=what != "slow disk")


def hurt(world: World, person: Person, chat_id: str, what: str) -> None:
    match what:
        case "send forbidden":
            person.send(chat_id, FORBIDDEN_CONTENT)
        case "cut":
            person.cut()
        case "away or back":
            person.go_away_or_come_back()
        case "crash":
            person.crash()
        case "time":
            world.pass_time(5_000)
        case "start over":
            world.server.start_over(chat_id)
        case "void":
            world.broadcast(world.server.add_void(chat_id))
        case "come or go":
            world.come_or_go(chat_id, GUEST)
        case "leave or join":
            world.come_or_go(chat_id, person.user_id)
        case "unheard":
            world.server.add_unheard(chat_id, GUEST)
        case "refuse anything":
            world.server.refuse_any += [RATE_LIMITED, STORE_UNAVAILABLE]
        case "repeat up" if person.up:
            person.up.append(person.up[0])
        case "lose up" if person.up:
            person.up.popleft()
        case "lose down" if person.down:
            person.down.popleft()
        case "repeat down" if person.down:
            person.down.append(person.down[0])
        case "swap down":
            person.down.rotate(1)
        case "refuse":
            world.server.refuse_next += [RATE_LIMITED, STORE_UNAVAILABLE]
        case "unknown, stored" | "unknown, not stored":
            world.server.store_when_unknown = what == "unknown, stored"
            world.server.refuse_next.append(OUTCOME_UNKNOWN)


class Life:
    """One life, drawn by a seed: a third of them hurt, a third also lose logs, a third go well."""

    def __init__(self, seed: int, make_core: MakeCore) -> None:
        random = Random(seed)
        self.is_well = seed % 3 == 2
        hurtful = (HURTFUL, [*HURTFUL, *STARTING_OVER], ON_A_GOOD_LINE)[seed % 3]
        self.world = World(seed=random.getrandbits(32), make_core=make_core)
        self._steps = [
            (
                random.choice(random.choice((ORDINARY, hurtful))),
                random.randrange(len(DEVICES)),
                random.choice(CHAT_IDS),
            )
            for _ in range(random.randint(STEPS_MIN, STEPS_MAX))
        ]

    def live(self) -> None:
        """All of it, and what follows until nothing is left to do."""
        for what, who, chat_id in self._steps:
            happen(self.world, self.world.people[who], chat_id, what)
        self.world.settle(cut=not self.is_well)
