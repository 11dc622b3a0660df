"""Every name that the tree defines: files, modules, classes and their members, constants, wire names."""

from __future__ import annotations

import ast
import gc
import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import PurePosixPath

from tests.tidy.prose import PATH, Mention, code, statements
from tests.tidy.repository import Source

WORD = re.compile(r"[A-Za-z_]\w*")
SNAKE = re.compile(r"[A-Za-z]\w*_\w+")
QUOTED = re.compile(r'"""(?s:.*?)"""|"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'")
QUERY = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|SET|WHERE|KEYS|ARGV)\b")
TABLE = re.compile(r"\bCREATE (?:TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)([^;]*)")
OWN_ATTRIBUTE = re.compile(r"\b(?:self|cls)\.([A-Za-z_]\w*)")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Definitions:
    """`words`: names that count although no statement defines them, such as keys of the configuration.

    `aliases`: which class pages mean by a variable of their samples. A test may name what tests define; a
    page or a source may only name the tests themselves.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        paths: Iterable[str],
        words: Iterable[str] = (),
        aliases: dict[str, str] | None = None,
    ) -> None:
        self._aliases = aliases or {}
        self._paths = {tail for path in paths for tail in _tails(path)}
        self._for_all = set(words)
        self._for_tests: set[str] = set()
        self._modules: dict[str, set[str]] = defaultdict(set)
        self._members: dict[str, set[str]] = defaultdict(set)
        self._bases: dict[str, set[str]] = defaultdict(set)
        self._foreign: set[str] = set()
        self._own: dict[str, set[str]] = {}
        with _no_garbage_collection():
            for source in sources:
                self._own[source.path] = set(WORD.findall(code(source)))
                if source.path.endswith(".py"):
                    self._learn(source)

    def know(self, mention: Mention) -> bool:
        name = mention.name
        if name in self._for_all or (_may_name_tests(mention.path) and name in self._for_tests):
            return True
        if PATH.fullmatch(name) and name.rstrip("/") in self._paths:
            return True
        return self._is_own(mention) or self._is_member(name)

    def _is_own(self, mention: Mention) -> bool:
        """What the file's own code or samples say; of a variable's attribute the attribute."""
        own = self._own.get(mention.path, set())
        first, *rest = mention.name.split(".")
        if rest and (mention.path.endswith(".md") or first in self._members):
            return False
        return own.issuperset(rest or [first])

    def _is_member(self, name: str) -> bool:
        """`module.name`, `Class.member`, `frame.field` or `table.column`; the longest module counts."""
        parts = name.split(".")
        for split in range(len(parts) - 1, 0, -1):
            if parts[split] in self._modules.get(".".join(parts[:split]), ()):
                return self._owns(parts[split:])
        first, *rest = parts
        owners = (first, _camel(first), self._aliases.get(first, first))
        return bool(rest) and (
            any(self._owns([owner, *rest]) for owner in owners)
            or (first in self._foreign and _has_attribute(first, tuple(rest)))
        )

    def _owns(self, parts: list[str]) -> bool:
        """Only the first step is looked at: which type an attribute has is not known here."""
        owner, *rest = parts
        return not rest or (owner in self._members and rest[0] in self._members_of(owner, set()))

    def _members_of(self, owner: str, seen: set[str]) -> set[str]:
        seen.add(owner)
        bases = self._bases.get(owner, set()) - seen
        return self._members.get(owner, set()).union(*(self._members_of(base, seen) for base in bases))

    def _learn(self, source: Source) -> None:
        path = PurePosixPath(source.path).with_suffix("")
        parts = path.parent.parts if path.name == "__init__" else path.parts
        text = code(source)
        names = self._define(source, text.splitlines())
        here = names | self._imports(source.tree)
        for start in range(len(parts)):
            self._modules[".".join(parts[start:])] |= here
            self._modules[".".join(parts[start:-1])].add(parts[-1])
        self._for_all |= {*parts, *(name for name in names if name.startswith("test_"))}
        words = self._for_tests if _may_name_tests(source.path) else self._for_all
        words |= names | set(OWN_ATTRIBUTE.findall(text)) | set(_quoted_names(text))
        for table, columns in TABLE.findall(text):
            self._members[table] |= set(WORD.findall(columns))

    def _define(self, source: Source, lines: list[str]) -> set[str]:
        """Functions, classes, and what is assigned outside of functions."""
        names = set(_assigned(source.tree.body))
        for node in statements(source):
            if isinstance(node, ast.ClassDef):
                members = {child.name for child in node.body if isinstance(child, (*FUNCTION, ast.ClassDef))}
                members |= set(_assigned(node.body))
                names |= {node.name, *members}
                body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                self._members[node.name] |= members | set(OWN_ATTRIBUTE.findall(body))
                self._bases[node.name] |= {
                    word for base in node.bases for word in WORD.findall(ast.unparse(base))
                }
            elif isinstance(node, FUNCTION):
                names.add(node.name)
        return names

    def _imports(self, tree: ast.Module) -> set[str]:
        names: set[str] = set()
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                modules = (
                    [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
                )
                self._foreign |= {module.partition(".")[0] for module in modules if module}
        return names


def _tails(path: str) -> Iterator[str]:
    """What a file or a folder may be called: from any folder on, a Python file also without its ending."""
    parts = PurePosixPath(path).parts
    for start in range(len(parts)):
        yield "/".join(parts[start:])
        for end in range(start + 1, len(parts)):
            yield "/".join(parts[start:end])
        if start < len(parts) - 1 and path.endswith(".py"):
            yield "/".join(parts[start:]).removesuffix(".py")


def _assigned(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Name):
                    yield part.id


def _quoted_names(text: str) -> Iterator[str]:
    """Strings as a whole (fields, codes), snake_case within them, and the words of queries and scripts."""
    for quoted in QUOTED.findall(text):
        string = quoted.strip("\"'")
        yield string
        yield from (WORD if QUERY.search(string) else SNAKE).findall(string)


def _may_name_tests(path: str) -> bool:
    return path.startswith("tests/") or path == "CONTRIBUTING.md"


def _camel(name: str) -> str:
    return "".join(part.title() for part in name.split("_"))


@cache
def _has_attribute(module: str, names: tuple[str, ...]) -> bool:
    try:
        found = importlib.import_module(module)
        for name in names:
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return False
    return True


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Trees are many small objects that all stay; to look through them again and again doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
