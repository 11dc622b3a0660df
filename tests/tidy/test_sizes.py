"""Rule: a file fits in a head and a function on a screen."""

import ast
from collections.abc import Iterator

from tests.tidy.repository import Breach, Source, assert_none, python_sources

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 80
POSITIONAL_MAX = 6


def oversizes(source: Source) -> Iterator[Breach]:
    file_lines = len(source.text.splitlines())
    if file_lines > FILE_LINES_MAX:
        yield source.breach(file_lines, f"the file has {file_lines} lines")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if function_lines > FUNCTION_LINES_MAX:
                yield source.breach(node.lineno, f"{node.name}() has {function_lines} lines")


def crowded_constructors(source: Source) -> Iterator[Breach]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            count = len(node.args.args) - 1
            if count > POSITIONAL_MAX:
                yield source.breach(node.lineno, f"{count} positional arguments")


def function_of(lines: int, keyword: str = "def") -> Source:
    return Source("sample.py", f"{keyword} long():\n" + "    pass\n" * (lines - 1))


def test_files_and_functions_are_short() -> None:
    """No Python file and no function exceeds its limit."""
    breaches = [breach for source in python_sources() for breach in oversizes(source)]
    assert_none(
        breaches, f"at most {FILE_LINES_MAX} lines a file and {FUNCTION_LINES_MAX} a function: split by idea"
    )


def test_a_long_file_is_caught() -> None:
    """One line more than a file may have is a breach."""
    assert not list(oversizes(Source("sample.py", "x = 1\n" * FILE_LINES_MAX)))
    assert list(oversizes(Source("sample.py", "x = 1\n" * (FILE_LINES_MAX + 1))))


def test_a_long_function_is_caught() -> None:
    """One line more than a function may have is a breach."""
    assert not list(oversizes(function_of(FUNCTION_LINES_MAX)))
    assert list(oversizes(function_of(FUNCTION_LINES_MAX + 1)))
    assert list(oversizes(function_of(FUNCTION_LINES_MAX + 1, "async def")))


def test_constructors_say_what_each_argument_is() -> None:
    """What takes many arguments takes them by their names."""
    breaches = [breach for source in python_sources("src") for breach in crowded_constructors(source)]
    assert_none(breaches, f"at most {POSITIONAL_MAX} positional arguments: take the others by name")


def test_a_crowded_constructor_is_caught() -> None:
    """One positional argument more than there may be is a breach; named ones do not count."""
    names = [f"a{n}" for n in range(POSITIONAL_MAX + 1)]
    crowded, fine = ", ".join(names), ", ".join([*names[1:], "*", names[0]])
    assert list(crowded_constructors(Source("sample.py", f"def __init__(self, {crowded}): ...")))
    assert not list(crowded_constructors(Source("sample.py", f"def __init__(self, {fine}): ...")))
