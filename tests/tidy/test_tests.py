"""Rule: a test says its claim in one sentence and never sleeps in the hope that something happened."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.repository import Breach, Source, assert_none, python_sources

ENDS_WITH_PROGRAM = {"run", "communicate", "wait", "check_call", "check_output"}
SENTENCE_BREAK = re.compile(r"[.!?][\"'”)]?\s+[A-Z]")


def naps(source: Source) -> Iterator[Breach]:
    """Calls of time.sleep, under whatever name it was imported."""
    modules, functions = {"time"}, set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            modules |= {name.asname for name in node.names if name.name == "time" and name.asname}
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            functions |= {name.asname or name.name for name in node.names if name.name == "sleep"}
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="sleep")) if module in modules:
                yield source.breach(node.lineno, "sleeps")
            case ast.Call(func=ast.Name(id=name)) if name in functions:
                yield source.breach(node.lineno, "sleeps")


def fixed_deadlines(source: Source) -> Iterator[Breach]:
    """Waits for the end of a program with a deadline that is the same on a slow or busy machine."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"))):
                continue
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in ENDS_WITH_PROGRAM:
                fixed = [one for one in node.keywords if one.arg == "timeout" and is_fixed(one.value)]
                yield from (source.breach(one.value.lineno, "has a fixed deadline") for one in fixed)


def is_fixed(value: ast.expr) -> bool:
    """Whether numbers and named limits are all that it is made of."""
    parts = [node for node in ast.walk(value) if isinstance(node, ast.Call | ast.Name | ast.Constant)]
    return all(
        (isinstance(part, ast.Constant) and part.value is not None)
        or (isinstance(part, ast.Name) and part.id.isupper())
        for part in parts
    )


def unclear_tests(source: Source) -> Iterator[Breach]:
    functions = [
        node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node in functions:
        if node.name.startswith("test_") and (says := unclear(ast.get_docstring(node))):
            yield source.breach(node.lineno, f"{node.name} {says}")


def unclear(docstring: str | None) -> str | None:
    if not docstring:
        return "has no docstring"
    sentence = " ".join(docstring.split())
    if not sentence.endswith((".", "!", "?")):
        return "has a docstring that does not end as a sentence"
    if SENTENCE_BREAK.search(sentence):
        return "has a docstring of several sentences"
    return None


def test_no_test_sleeps() -> None:
    """Tests wait for events or use a virtual clock, they never call time.sleep."""
    breaches = [breach for source in python_sources("tests") for breach in naps(source)]
    assert_none(breaches, "wait for what must happen, with a deadline, or pass time by a virtual clock")


def test_no_deadline_of_a_program_is_fixed() -> None:
    """What takes a quiet machine a second takes a busy one several."""
    breaches = [breach for source in python_sources("tests") for breach in fixed_deadlines(source)]
    assert_none(breaches, "timeout=stretched(seconds), of tests/waiting.py")


def test_every_test_is_one_sentence() -> None:
    """Every test says in one sentence what it claims."""
    breaches = [breach for source in python_sources("tests") for breach in unclear_tests(source)]
    assert_none(breaches, 'a test starts with its claim: """A draft sent twice is stored once."""')


@pytest.mark.parametrize(
    "lines",
    [
        "run(command, timeout=30)",
        "process.communicate(timeout=ANSWER_SECONDS_MAX)",
        "one.wait(timeout=2 * 5.0)",
    ],
)
def test_a_fixed_deadline_is_caught(lines: str) -> None:
    """Of a program, by a number or by a name."""
    assert list(fixed_deadlines(Source("sample.py", lines)))


def test_a_deadline_that_grows_passes() -> None:
    """And one of a caller's own."""
    fitting = (
        "run(command, timeout=stretched(30))",
        "one.wait(timeout=timeout)",
        "asyncio.wait(tasks, timeout=1)",
    )
    assert not list(fixed_deadlines(Source("sample.py", "\n".join(fitting))))


@pytest.mark.parametrize(
    "lines",
    [
        "import time\ntime.sleep(1)",
        "import time as t\nt.sleep(0.1)",
        "from time import sleep\nsleep(1)",
        "from time import sleep as nap\ndef f(): nap(1)",
    ],
)
def test_a_nap_is_caught(lines: str) -> None:
    """Sleeping is a breach under every name."""
    assert list(naps(Source("sample.py", lines)))


def test_a_virtual_sleep_passes() -> None:
    """Waiting on a loop or a virtual clock is no breach."""
    assert not list(naps(Source("sample.py", "async def f(): await clock.sleep(1); await asyncio.sleep(0)")))


@pytest.mark.parametrize(
    "docstring", ["", "No full stop", "It sends. It stores.", "Sends.\n\nAnd then more follows."]
)
def test_an_unclear_test_is_caught(docstring: str) -> None:
    """A missing, unfinished or longer docstring is a breach, in functions and in methods."""
    function = f"async def test_it():\n    '''{docstring}'''"
    method = f"class TestIt:\n    def test_it(self):\n        '''{docstring}'''"
    assert list(unclear_tests(Source("sample.py", function)))
    assert list(unclear_tests(Source("sample.py", method)))


def test_a_clear_test_passes() -> None:
    """One sentence, even over two lines and with a version number in it, is no breach."""
    sample = "def test_it():\n    '''A draft sent twice to protocol 1.0\n    is stored once.'''"
    assert not list(unclear_tests(Source("sample.py", sample)))
