"""What a storage engine must implement, the suites that check it, who may name one, and the tables of one."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Protocol, get_args, get_origin, get_type_hints

from msgspec import Struct

from docs.tables import code, table
from parley.store import ports
from parley.store.dynamodb import schema
from parley.store.tables import TABLES

ROOT = Path(__file__).resolve().parents[1]
SUITES = ROOT / "tests/contracts"
ENGINE_ROOMS = ("parley.bus.", "parley.ephemeral.", "parley.store.")
CONTRACT = "ports.py"
"""Its ports come first, in their own order."""
LEFT_OUT = "None: "


class EnginePort(Struct):
    """One port. `left_out`: what it means that an engine does not have it; empty where it must."""

    kind: type
    left_out: str

    @property
    def methods(self) -> list[str]:
        return [name for name, made in _members(self.kind) if inspect.isfunction(made)]

    @property
    def file(self) -> str:
        return str(Path(inspect.getfile(self.kind)).relative_to(ROOT / "src/parley/store"))


def engine_ports() -> str:
    """One row per port, and their sum."""
    found = sorted(ports_of(ports.Engine), key=lambda port: port.file != CONTRACT)
    rows = [
        (
            code(port.kind.__name__),
            f"[`{port.file}`](../src/parley/store/{port.file})",
            str(len(port.methods)),
            _first_sentence(port.kind),
            port.left_out,
        )
        for port in found
    ]
    needed = sum(len(port.methods) for port in found if not port.left_out)
    total = sum(len(port.methods) for port in found)
    says = f"Together {total} methods; {needed} without the ports that an engine may leave out."
    return f"{table(('port', 'file', 'methods', 'what it is for', 'None means'), rows)}\n\n{says}"


def ports_of(kind: type, left_out: str = "") -> Iterator[EnginePort]:
    """The port itself, if it has methods, and those that its properties return; each once."""
    own = EnginePort(kind, left_out)
    if own.methods:
        yield own
    seen = set()
    for _, made in _members(kind):
        for port in _returned(made, left_out) if isinstance(made, property) else ():
            if port.kind not in seen:
                seen.add(port.kind)
                yield port


def _returned(made: property, left_out: str) -> Iterator[EnginePort]:
    hint = get_type_hints(made.fget)["return"]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if NoneType in kinds:
        said = " ".join((made.__doc__ or "").split())
        assert LEFT_OUT in said, f"the port must say what None means: {said}"
        left_out = said.partition(LEFT_OUT)[2].removesuffix(".")
    for kind in (get_origin(one) or one for one in kinds):
        if Protocol in kind.__mro__:
            yield from ports_of(kind, left_out)


def _members(kind: type) -> Iterator[tuple[str, object]]:
    """What a reader finds in a port and its bases, in that order."""
    for base in reversed(kind.__mro__):
        yield from ((name, made) for name, made in vars(base).items() if not name.startswith("_"))


def _first_sentence(kind: type) -> str:
    first = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return first.partition(". ")[0].removesuffix(".")


# Suites


def contract_suites() -> str:
    """The suites whose tests take `engine`, each with the first sentence of its file."""
    rows = []
    for file in sorted(SUITES.glob("test_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if takes_engine(tree):
            promise = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
            rows.append((f"[`{file.stem}`](../tests/contracts/{file.name})", promise.removesuffix(".")))
    return table(("suite", "promise"), rows)


def takes_engine(tree: ast.Module) -> bool:
    """Whether a function in it asks for a storage engine."""
    return any(
        isinstance(node, ast.arg)
        and node.arg == "engine"
        and ast.unparse(node.annotation or node) == "Engine"
        for node in ast.walk(tree)
    )


# Who may name an engine


def engine_importers() -> str:
    """The import contracts that protect engines, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rows = []
    for contract in project["tool"]["importlinter"]["contracts"]:
        protected = contract.get("protected_modules", [])
        if any(name.startswith(ENGINE_ROOMS) for name in protected):
            exceptions = [one.replace("parley.", "") for one in contract.get("ignore_imports", [])]
            rows.append(
                (_rooms(protected), _rooms(contract["allowed_importers"]), ", ".join(map(code, exceptions)))
            )
    return table(("engines", "imported only by", "and where one module needs another"), rows)


def _rooms(modules: Sequence[str]) -> str:
    return ", ".join(code(name.removeprefix("parley.")) for name in modules)


# The tables of DynamoDB


def dynamodb_tables() -> str:
    """Every table with its key, and what the schema says of it."""
    said = _said_of_tables(ast.parse(Path(schema.__file__).read_text(encoding="utf-8")))
    said |= {schema.records_of(kept): kept.says for kept in TABLES}
    rows = []
    for name, made in schema.TABLES.items():
        keys = [key for key in (made.hash_key, made.range_key) if key is not None]
        rows.append((code(name), ", ".join(map(code, keys)), said[name]))
    return table(("table", "key", "what"), rows)


def _said_of_tables(tree: ast.Module) -> dict[str, str]:
    """The string below each definition of a table."""
    said = {}
    for defined, below in pairwise(tree.body):
        match defined, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="_define"))),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                said[getattr(schema, name)] = " ".join(text.split()).removesuffix(".")
    return said
