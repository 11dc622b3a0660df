"""Rule: a port is few verbs of the domain, each with its promise."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.repository import Breach, Source, assert_none, python_sources

PORT_METHODS_MAX = 8
PORT_FILES = ("/port.py", "/ports.py", "/maintenance.py")


def port_breaches(source: Source) -> Iterator[Breach]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and is_protocol(node):
            yield from breaches_of_port(source, node)


def is_protocol(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return any(ast.unparse(base).rpartition(".")[2] == "Protocol" for base in bases)


def breaches_of_port(source: Source, port: ast.ClassDef) -> Iterator[Breach]:
    methods = [node for node in port.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    verbs = [method for method in methods if "property" not in map(ast.unparse, method.decorator_list)]
    if len(verbs) > PORT_METHODS_MAX:
        yield source.breach(port.lineno, f"{port.name} has {len(verbs)} methods")
    for method in methods:
        if not ast.get_docstring(method):
            yield source.breach(method.lineno, f"{port.name}.{method.name} makes no promise (no docstring)")


def port_of(methods: int, base: str = "Protocol", body: str = '"""Promise."""') -> Source:
    lines = [f"    async def verb_{n}(self): {body}" for n in range(methods)]
    return Source("ports.py", "\n".join([f"class Port({base}):", *lines]))


def test_ports_are_few_verbs_with_promises() -> None:
    """Every port has at most eight methods and each says what it promises."""
    ports = [source for source in python_sources("src") if source.path.endswith(PORT_FILES)]
    breaches = [breach for source in ports for breach in port_breaches(source)]
    assert_none(
        breaches, f"a port has at most {PORT_METHODS_MAX} methods, each with its promise as docstring"
    )


@pytest.mark.parametrize("base", ["Protocol", "typing.Protocol", "Protocol[T]"])
def test_a_wide_port_is_caught(base: str) -> None:
    """A ninth method is a breach, however the protocol is declared."""
    assert not list(port_breaches(port_of(PORT_METHODS_MAX, base)))
    assert list(port_breaches(port_of(PORT_METHODS_MAX + 1, base)))


def test_a_silent_method_is_caught() -> None:
    """A method without a docstring is a breach."""
    assert list(port_breaches(port_of(1, body="...")))
