"""Rule: what pages, docstrings and comments name exists."""

from __future__ import annotations

import builtins
import json
import keyword
import re
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from parley import config
from parley.store.dynamodb.schema import records_of
from parley.store.tables import TABLES
from parley.telemetry import Metrics
from tests.tidy.definitions import Definitions
from tests.tidy.prose import code, mentions
from tests.tidy.repository import ROOT, Breach, Source, assert_none, python_sources, texts

FOREIGN = "tests/tidy/foreign_names.txt"
ALIASES = {"me": "Client"}
TYPESCRIPT_ALIASES = {"Client": "me", "People": "me"}
OTHER_FILES = ("Makefile", ".yml", ".toml", ".service", ".sh")
COMMENT = re.compile(r"/\*.*?\*/|^\s*//.*?$", re.DOTALL | re.MULTILINE)
OF_LINES = re.DOTALL | re.MULTILINE
OTHER_NAME = re.compile(r"[A-Za-z]\w*_\w+|(?:[A-Z][a-z]+){2,}|^[A-Za-z]+(?=[:=])", re.MULTILINE)


def unknown_names(sources: Iterable[Source], known: Definitions, foreign: frozenset[str]) -> Iterator[Breach]:
    """Names in the prose of these files that nothing defines and nobody allowed."""
    for source in sources:
        for mention in mentions(source):
            if mention.name not in foreign and not known.know(mention):
                yield Breach(mention.path, mention.line, f"{mention.name} does not exist")


def unused(foreign: Iterable[str], sources: Iterable[Source]) -> set[str]:
    """Allowed names that no prose uses any longer."""
    return set(foreign) - {mention.name for source in sources for mention in mentions(source)}


@cache
def prose() -> list[Source]:
    others = [source for source in texts() if source.path.endswith(OTHER_FILES)]
    return [*texts(".md"), *python_sources(), *others]


@cache
def foreign_names() -> frozenset[str]:
    lines = (ROOT / FOREIGN).read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


@cache
def tree() -> Definitions:
    return Definitions(prose(), [source.path for source in texts()], words(), ALIASES)


def words() -> Iterator[str]:
    """Names that are made at run time, that Python brings, or that files other than Python define."""
    yield from (*keyword.kwlist, *vars(builtins))
    for section, keys in config.sections().items():
        yield from (f"{section}.{key}" for key in keys)
        yield from (config.variable_of(section, key) for key in keys)
    for metric in Metrics(lambda: 0).registry.collect():
        yield from (metric.name, *(f"{metric.name}_{part}" for part in ("total", "count", "sum", "bucket")))
    yield from map(records_of, TABLES)
    for source in texts():
        if source.path.endswith(OTHER_FILES):
            yield from OTHER_NAME.findall(code(source))
    for source in texts(".ts"):
        yield from typescript_names(source.text)
    entries = json.loads((ROOT / "clients/typescript/package.json").read_text(encoding="utf-8"))["exports"]
    yield from (f"parley-chat{entry[1:]}" for entry in entries)


def typescript_names(text: str) -> set[str]:
    """The words of TypeScript outside of its comments, and the members of its classes and interfaces.

    Pages speak of them by the class, or by a variable that is called like it.
    """
    bare = COMMENT.sub("", text)
    owners = re.findall(r"^export (?:abstract )?(?:class|interface) (\w+)[^{]*{\n(.*?)^}", bare, OF_LINES)
    members = {
        f"{name}.{member}"
        for owner, body in owners
        for name in (owner, owner[0].lower() + owner[1:], TYPESCRIPT_ALIASES.get(owner, owner))
        for member in re.findall(r"^  (?:[a-z]+ )*(\w+)\??[(:;<]", body, re.MULTILINE)
    }
    return {*re.findall(r"[A-Za-z_]\w*", bare), *members}


def test_every_name_exists() -> None:
    """Every file, module, class, function, field and constant that prose names is there."""
    breaches = unknown_names(prose(), tree(), foreign_names())
    assert_none(breaches, f"name what there is; a name of others goes to {FOREIGN}")


def test_every_foreign_name_is_used() -> None:
    """A name of others is allowed as long as somebody uses it."""
    breaches = [Breach(FOREIGN, 1, f"{name} is used nowhere") for name in unused(foreign_names(), prose())]
    assert_none(breaches, "take out what is no longer needed")


CODE = '''
"""A room."""
import asyncio

LIMIT_MAX = 5
TABLES = """CREATE TABLE chats (chat_id TEXT, head INTEGER) STRICT;"""

class Base:
    epoch: int = 0

class LiveChat(Base):
    """One of them."""
    def __init__(self) -> None:
        self.sent_through = 0

    def catch_up(self, goal: int) -> None:
        """Read up to `goal`."""
        refuse("not_a_member")

class Welcome:
    limits: int
'''
HELPER = "def open_world():\n    pass\n\ndef test_a_claim(): ...\n"


def sample(*more: Source) -> Definitions:
    room = Source("src/parley/gateway/hub.py", CODE)
    return Definitions([room, Source("tests/unit/worlds.py", HELPER), *more], ["docs/fan-out.md", room.path])


@pytest.mark.parametrize(
    "text",
    [
        "`sent_to`",
        "what sent_to means",
        "`LiveChat.gone`",
        "LiveChat.gone does it",
        "`LiveChats`",
        "the LiveChats of it",
        "`LIMIT_MIN`",
        "never above LIMIT_MIN",
        "`fill()`",
        "`fill(goal, 3)`",
        "`gateway/hubs`",
        "`hubs.py`",
        "see docs/fan-in.md",
        "`parley.gateway.hubs`",
        "`parley.gateway.hub.Hub`",
        "`gateway.hub.LiveChat.gone`",
        "`welcome.heads`",
        "`chats.epoch`",
        "`not_a_guest`",
        "`asyncio.no_such_thing`",
        "`catch_up after sent_to`",
        "`test_another_claim`",
        "```\nLiveChat sent_to\n```",
        "`goal`",
        "`open_world`",
    ],
)
def test_a_name_that_nothing_defines_is_caught(text: str) -> None:
    """A name that is not there is a breach; so is one that only a function or a helper of tests knows."""
    page = Source("docs/page.md", f"# A page\n\n{text}\n")
    assert [breach.path for breach in unknown_names([page], sample(page), frozenset())] == ["docs/page.md"]


@pytest.mark.parametrize(
    "text",
    [
        "`sent_through` and `LiveChat.catch_up()`",
        "`LiveChat.epoch`, which it inherits",
        "`LIMIT_MAX` seconds",
        "`gateway/hub`, `gateway/hub.py`, `hub.py`, `src/parley/gateway/`",
        "`parley.gateway.hub.LiveChat.catch_up`",
        "`welcome.limits`",
        "`chats.head`",
        "`not_a_member`",
        "`asyncio.run`",
        "`test_a_claim`",
        "```python\nour_own = 1\n```\n`our_own`",
        "[text](no/such_file.md) https://example.com/no_such",
        "plain words, and/or others: e.g. 5 ms",
    ],
)
def test_a_name_that_exists_passes(text: str) -> None:
    """Files, modules, classes, fields, tables, codes, libraries and the page's own samples are known."""
    page = Source("docs/page.md", text)
    assert not list(unknown_names([page], sample(page), frozenset()))


@pytest.mark.parametrize(
    "text",
    [
        '"""See `gone`."""\n',
        'LIMIT = 1\n"""As `gone` says."""\n',
        'class A:\n    def f(self):\n        """Like\n        `gone`."""\n',
        "x = '#'  # as `gone` does\n",
        "# like going_gone\n",
    ],
)
def test_docstrings_and_comments_are_read(text: str) -> None:
    """Prose in Python is held to the same, docstrings of constants too."""
    source = Source("src/parley/x.py", text)
    assert list(unknown_names([source], sample(source), frozenset()))


def test_comments_of_other_files_are_read() -> None:
    """The Makefile and the alert rules are held to it, too."""
    source = Source("Makefile", "test: check\n\tpytest  # as going_gone says\n")
    assert list(unknown_names([source], sample(source), frozenset()))


def test_code_is_no_prose() -> None:
    """What code and its strings say is not checked, and what they define may be named in the same file."""
    source = Source("src/parley/x.py", 'def f(goal):\n    """To `goal`."""\n    return "a # `b` gone_by"\n')
    assert not list(unknown_names([source], sample(source), frozenset()))


def test_a_test_may_name_what_tests_define() -> None:
    """A helper of the tests exists for tests."""
    source = Source("tests/unit/test_x.py", '"""In `open_world`."""\n')
    assert not list(unknown_names([source], sample(source), frozenset()))


def test_the_line_of_a_name_is_told() -> None:
    """A breach names file, line and what does not exist."""
    page = Source("docs/page.md", "one\n\n```console\n$ parley\n```\nsix\n`gone` here\n")
    [breach] = unknown_names([page], sample(page), frozenset())
    assert str(breach) == "docs/page.md:7: gone does not exist"


def test_a_foreign_name_that_nobody_uses_is_caught() -> None:
    """The list of names of others cannot grow old."""
    page = Source("docs/page.md", "`INCR` and `EXPIRE`")
    assert unused(["INCR", "EXPIRE", "GETDEL"], [page]) == {"GETDEL"}


def test_names_of_typescript_are_learned() -> None:
    """Pages may name what TypeScript defines; not what only a comment of it says."""
    text = "/** Not `gone`. */\nexport class Tea {\n  get cups(): number {\n    return ml;\n  }\n}\n// gone\n"
    names = typescript_names(text)
    assert {"Tea", "Tea.cups", "tea.cups", "ml"} <= names
    assert "gone" not in names
