"""Rule: a sentence that lists the engines or the roles lists all of them, and no use case names an engine."""

import ast
import re
from collections.abc import Iterator

from parley.config import ROLES
from tests.tidy.prose import strings_of
from tests.tidy.repository import Breach, Source, assert_none, python_sources, texts

USE_CASES = ("chats", "core", "delivery", "files", "gateway", "people", "push", "wire")
ENGINE = re.compile(r"SQLite|DynamoDB|Cassandra")
ALL_OF_THEM = frozenset({"SQLite", "DynamoDB", "Cassandra"})
HISTORY = re.compile(r"CHANGELOG|BENCHMARKS|mutants|decisions/|-on-dynamodb|-on-cassandra")
"""What a version had, what a run measured, what a fault changed; and the pages of one engine."""
SAMPLE = re.compile(r"```.*?```", re.DOTALL)
SENTENCE = re.compile(r"(?:[^\n.:;]|[.:;](?!\s)|\n(?![\n|]|\s*(?:[-*]|\d+\.) ))+")
LISTED_MIN = 3
"""So many roles in one sentence are a list."""


def sentences(page: Source) -> Iterator[tuple[int, str]]:
    text = SAMPLE.sub(lambda found: "\n" * found[0].count("\n"), page.text)
    for found in SENTENCE.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, " ".join(found[0].split())


def partial_lists(page: Source) -> Iterator[Breach]:
    """Sentences that name two engines and not the third, or most roles and not all."""
    for line, sentence in sentences(page):
        engines = set(ENGINE.findall(sentence))
        if engines >= {"SQLite", "DynamoDB"} and engines != ALL_OF_THEM:
            yield page.breach(line, f"what of {', '.join(ALL_OF_THEM - engines)}? {sentence[:90]}")
        roles = {role for role in ROLES if f"`{role}`" in sentence}
        if len(roles) >= LISTED_MIN and roles != set(ROLES):
            yield page.breach(line, f"what of {', '.join(sorted(set(ROLES) - roles))}? {sentence[:90]}")


def named_engines(source: Source) -> Iterator[Breach]:
    """What a module tells its callers, beside what it says of itself."""
    own = {id(constant) for constant in strings_of(source)}
    for node in ast.walk(source.tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in own and ENGINE.search(text):
                yield source.breach(node.lineno, f"names an engine: {text}")


def test_a_list_of_engines_or_roles_is_whole() -> None:
    """No page says of two engines what the third does, too, or leaves a role out."""
    pages = [page for page in texts(".md") if not HISTORY.search(page.path)]
    breaches = [breach for page in pages for breach in partial_lists(page)]
    assert_none(
        breaches, "a sentence lists every engine and every role, or none: say what they have in common"
    )


def test_no_use_case_names_an_engine() -> None:
    """What clients are told is true of every engine, also of the next one."""
    sources = python_sources(*(f"src/parley/{room}" for room in USE_CASES))
    assert_none(
        [breach for source in sources for breach in named_engines(source)], "use cases know only ports"
    )


def test_a_list_with_a_gap_is_caught() -> None:
    """A list without one of them is seen, wherever its lines end; one with all, and a single one, is not."""
    whole = Source("page.md", "On SQLite,\nDynamoDB and Cassandra. On SQLite alone.")
    partial = Source("page.md", "Tried. It is on SQLite\nand on DynamoDB.")
    assert not list(partial_lists(whole))
    assert [breach.line for breach in partial_lists(partial)] == [1]
    assert list(partial_lists(Source("page.md", "`gateway`, `ingest` and `delivery`")))


def test_an_engine_in_a_refusal_is_caught() -> None:
    """A string that a client gets counts, a docstring does not."""
    assert list(named_engines(Source("chats/tea.py", 'REFUSAL = "use SQLite for that"')))
    assert not list(named_engines(Source("chats/tea.py", '"""Tea, which SQLite has, too."""')))
