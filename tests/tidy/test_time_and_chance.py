"""Rule: below `app` the real clock and real chance are only what a parameter is when it is left out.

Durations are measured by the event loop, whose time is virtual in tests; that needs no parameter.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.repository import Breach, Source, assert_none, python_sources

ABOVE = tuple(f"src/parley/{room}" for room in ("app/", "cli/", "testing/", "__main__.py"))
ALLOWED = {
    "src/parley/clock.py": "where the real clock is",
    "src/parley/client/client.py": "who connects need not know of chance",
    "src/parley/ephemeral/redis/signals.py": "a name by which a process knows its own signals",
    "src/parley/store/sqlite/command_connection.py": "SQLite calls it from C while it holds the thread",
}
REAL = {
    "datetime": {"now", "today", "utcnow"},
    "os": {"getrandom", "urandom"},
    "parley.clock": {"wall_clock"},
    "random": {
        "SystemRandom",
        "choice",
        "getrandbits",
        "randint",
        "random",
        "randrange",
        "shuffle",
        "uniform",
    },
    "secrets": {"choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe"},
    "time": {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"},
    "uuid": {"uuid1", "uuid4"},
}
IMPORT = re.compile(rf"\b(?:import|from) (?:{'|'.join(map(re.escape, REAL))})\b")


def real_ones(source: Source) -> Iterator[Breach]:
    """Where a file speaks of the real clock or chance, save for the defaults of parameters."""
    if not IMPORT.search(source.text):
        return
    modules, names = imported(source.tree)
    for node in without_defaults(source.tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if name in REAL.get(
                modules.get(owner, ""), ()
            ):
                yield source.breach(node.lineno, f"uses {owner}.{name}")
            case ast.Name(id=name) if name in names:
                yield source.breach(node.lineno, f"uses {name}")


def imported(tree: ast.Module) -> tuple[dict[str, str], set[str]]:
    """Which modules of clocks and dice go by which name here, and which of their functions do."""
    modules: dict[str, str] = {}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in REAL}
        elif isinstance(node, ast.ImportFrom) and node.module in REAL:
            real = REAL[node.module]
            names |= {alias.asname or alias.name for alias in node.names if alias.name in real}
            if node.module == "datetime":
                modules |= {alias.asname or alias.name: "datetime" for alias in node.names}
    return modules, names


def without_defaults(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.arguments):
            continue
        yield from without_defaults(child)


def below_app() -> list[Source]:
    return [source for source in python_sources("src") if not source.path.startswith(ABOVE)]


def test_time_and_chance_are_arguments() -> None:
    """Nothing below app picks the real clock or rolls real dice by itself."""
    breaches = [b for source in below_app() if source.path not in ALLOWED for b in real_ones(source)]
    assert_none(breaches, "take a clock, or chance, as a parameter; its default may be the real one")


def test_every_exception_is_needed() -> None:
    """A file that no longer needs its exception loses it."""
    assert {source.path for source in below_app() if any(real_ones(source))} == set(ALLOWED)


@pytest.mark.parametrize(
    "text",
    [
        "import time\nnow = time.time()",
        "import time as t\ndef f(): return t.monotonic()",
        "from time import time_ns\ndef f(): return time_ns()",
        "from parley.clock import wall_clock\ndef f(): return wall_clock()",
        "import random\nclass A:\n    def f(self): self.draw = random.random",
        "import random as chance\ndef f(): return chance.getrandbits(8)",
        "import secrets\ndef f(): return secrets.token_bytes(16)",
        "from uuid import uuid4\nNAME = uuid4().hex",
        "from datetime import UTC, datetime\nat = datetime.now(UTC)",
        "import datetime\nat = datetime.utcnow()",
    ],
)
def test_a_real_clock_or_dice_is_caught(text: str) -> None:
    """Each way to take real time or chance is a breach, called or handed on."""
    assert list(real_ones(Source("sample.py", text)))


@pytest.mark.parametrize(
    "text",
    [
        "from parley.clock import wall_clock\ndef f(clock=wall_clock): return clock()",
        "import random\ndef f(*, draw=random.random): return draw()",
        "from random import Random\ndef f(random: Random): return random.random()",
        "import asyncio\ndef f(): return asyncio.get_running_loop().time()",
        "import uuid\ndef f(key): return uuid.UUID(bytes=key)",
        "from datetime import datetime\ndef f(text): return datetime.fromisoformat(text)",
    ],
)
def test_a_parameter_passes(text: str) -> None:
    """Defaults of parameters, what is passed in and the loop's time are no breach."""
    assert not list(real_ones(Source("sample.py", text)))
