"""Rule: `core`, `wire` and the vocabulary never wait, read a clock, roll dice, log or touch the machine."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.repository import Breach, Source, assert_none, python_sources

PURE_ROOMS = ("src/parley/core", "src/parley/wire")
VOCABULARY = frozenset({"src/parley/errors.py", "src/parley/ids.py", "src/parley/model.py"})
WORLDLY_MODULES = frozenset(
    {
        "aiohttp",
        "apsw",
        "asyncio",
        "concurrent",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "prometheus_client",
        "random",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "structlog",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "uvloop",
    }
)
WORLDLY_CALLS = frozenset({"input", "open", "print"})
CLOCK_READS = frozenset({"now", "today", "utcnow"})
WAITING = (ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await)


def impurities(source: Source) -> Iterator[Breach]:
    for node in ast.walk(source.tree):
        if says := impurity_of(node):
            yield source.breach(getattr(node, "lineno", 1), says)


def impurity_of(node: ast.AST) -> str | None:
    match node:
        case ast.Import(names=names):
            worldly = sorted({name.name for name in names if is_worldly(name.name)})
            return f"imports {', '.join(worldly)}" if worldly else None
        case ast.ImportFrom(module=str(module)) if is_worldly(module):
            return f"imports {module}"
        case ast.Call(func=ast.Name(id=name)) if name in WORLDLY_CALLS:
            return f"calls {name}()"
        case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCK_READS:
            return f"reads a clock with .{name}()"
        case ast.comprehension(is_async=1):
            return "waits"
        case _ if isinstance(node, WAITING):
            return "waits"
    return None


def is_worldly(module: str) -> bool:
    return module.partition(".")[0] in WORLDLY_MODULES


def test_pure_rooms_are_pure() -> None:
    """Nothing in core, wire and the vocabulary waits or touches the machine."""
    vocabulary = [source for source in python_sources("src") if source.path in VOCABULARY]
    sources = python_sources(*PURE_ROOMS) + vocabulary
    breaches = [breach for source in sources for breach in impurities(source)]
    assert_none(breaches, "these rooms are pure: time, chance and input come as arguments")


@pytest.mark.parametrize(
    "line",
    [
        "async def receive(): pass",
        "async def f(): await g()",
        "async def f(): return [x async for x in y]",
        "import time",
        "import random as dice",
        "import os.path",
        "from asyncio import sleep",
        "from logging import getLogger",
        "from socket import socket",
        "def f():\n    import os",
        "print('sent')",
        "at = datetime.now(UTC)",
    ],
)
def test_an_impure_line_is_caught(line: str) -> None:
    """Each way to touch the world is a breach."""
    assert list(impurities(Source("sample.py", line)))


def test_a_pure_line_passes() -> None:
    """Plain computation and neutral imports are no breach."""
    sample = "import msgspec\ndef is_typing(lease, now_ms): return now_ms < lease.expires_ms"
    assert not list(impurities(Source("sample.py", sample)))
