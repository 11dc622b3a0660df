"""Which names prose uses. Prose is a page's text, a docstring, or a comment in any file.

A name is what stands between backticks and has the form of one, and outside of them what can be nothing else:
a path with its ending, `snake_case`, `CamelCase`, `UPPER_CASE`, `Class.method`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from tests.tidy.repository import Source

ENDINGS = "py|md|toml|yml|yaml|json|txt|svg|service|sh"
SAMPLE = re.compile(r"^ *(```|~~~)\w.*?^ *\1", re.DOTALL | re.MULTILINE)
HIDDEN = re.compile(r"<!--.*?-->|\w+://[^\s)>`]+|(?<=\])\([^)]*\)", re.DOTALL)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")
COMMENT = re.compile(r"(?:^|(?<=\s))#(?!!)")
SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
CALL = re.compile(r"\(.*\)$", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
PATH = re.compile(rf"[\w.\-]+(?:/[\w.\-]+)*/[\w.\-]*|[\w\-]+\.(?:{ENDINGS})")
BODIES = frozenset({"body", "handlers", "orelse", "finalbody", "cases"})
SURE = re.compile(
    rf"""(?<![\w./$@%:<>{{}}*\[=-])(?:
        [\w\-.]+(?:/[\w\-.]+)+\.(?:{ENDINGS}) | [a-z][\w\-]*\.(?:py|md)              # a path
      | (?:[A-Za-z_]\w*\.)*                                                          # module.Class.
        (?: _?[a-z][a-z0-9]*(?:_[a-z0-9]+)+ | [A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+          # snake_case, UPPER_CASE
          | (?:[A-Z][a-z0-9]+){{2,}} | (?:[A-Z][a-z0-9]+)+\.[a-z_]\w* )              # CamelCase, Class.method
        (?:\.[a-z_]\w*)*
    )(?![\w*{{<]|/\w|-\w|\.\w)""",
    re.VERBOSE,
)


class Mention(NamedTuple):
    path: str
    line: int
    name: str


def mentions(source: Source) -> Iterator[Mention]:
    """Every name in the prose of a page or in what a file of code says of itself, with its line."""
    for first, text in _page(source) if source.path.endswith(".md") else _commentary(source):
        for name, start in _names(text):
            yield Mention(source.path, first + text.count("\n", 0, start), name)


def code(source: Source) -> str:
    """The rest: a Python file without its prose, the samples in a page."""
    if source.path.endswith(".md"):
        return "\n".join(found[0] for found in SAMPLE.finditer(source.text))
    return "\n".join(_split(source)[1])


def _page(page: Source) -> Iterator[tuple[int, str]]:
    """A block without a language is a drawing, and part of the prose."""
    text = page.text
    for what in (SAMPLE, HIDDEN):
        text = what.sub(lambda found: " " + "\n" * found[0].count("\n"), text)
    yield 1, text.replace("```", "   ")


def _commentary(source: Source) -> Iterator[tuple[int, str]]:
    yield from _split(source)[0]


@cache
def _split(source: Source) -> tuple[list[tuple[int, str]], list[str]]:
    """Docstrings, also those of constants, and comments, each with its first line; and the code without."""
    lines = source.text.splitlines()
    prose: list[tuple[int, str]] = []
    for string in strings_of(source) if source.path.endswith(".py") else ():
        start, end = string.lineno - 1, string.end_lineno or string.lineno
        prose.append((start + 1, "\n".join(lines[start:end])))
        lines[start:end] = [""] * (end - start)
    for index, line in enumerate(lines):
        if "#" in line and (found := COMMENT.search(STRING.sub(lambda quoted: "_" * len(quoted[0]), line))):
            prose.append((index + 1, line[found.end() :]))
            lines[index] = line[: found.start()]
    return prose, lines


def strings_of(source: Source) -> Iterator[ast.Constant]:
    """Strings that are statements of their own."""
    for child in statements(source):
        value = child.value if isinstance(child, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value


@cache
def statements(source: Source) -> list[ast.stmt]:
    """Every statement of a file, however deep; expressions are passed over."""
    found: list[ast.stmt] = []
    _gather(source.tree.body, found)
    return found


def _gather(body: Sequence[ast.AST], found: list[ast.stmt]) -> None:
    for node in body:
        if isinstance(node, ast.stmt):
            found.append(node)
        for part in node._fields:
            if part in BODIES:
                _gather(getattr(node, part), found)


def _names(text: str) -> Iterator[tuple[str, int]]:
    for span in SPAN.finditer(text):
        bare = CALL.sub("", span[1])
        if NAME.fullmatch(bare) or PATH.fullmatch(bare):
            yield bare, span.start()
        else:  # A phrase, a command or a condition: the names in it.
            yield from ((found[0], span.start()) for found in SURE.finditer(span[1]))
    rest = SPAN.sub(lambda span: re.sub(r"[^\n]", " ", span[0]), text)
    yield from ((found[0], found.start()) for found in SURE.finditer(rest))
