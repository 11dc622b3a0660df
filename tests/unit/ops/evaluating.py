"""As much of Prometheus as the shipped rules use: selectors, increase, + - / and one comparison.

A rule is judged from two scrapes of a server: `increase` is what came between them, anything else is the
later one. As in Prometheus, a series that the earlier scrape lacks has no increase.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Series = dict[Labels, float]
Scrape = dict[str, Series]

TOKEN = re.compile(r"\s*([a-z_][a-z0-9_]*|\d+(?:\.\d+)?|\"[^\"]*\"|\[\w+\]|[^\s\w])")
TARGET = {"job": "parley"}
"""What Prometheus adds to every sample of a target."""

COMPARISONS: dict[str, Callable[[float, float], bool]] = {">": operator.gt, "<": operator.lt}
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "/": lambda a, b: a / b if b else math.nan,
}


class History(NamedTuple):
    """Two looks at a server."""

    before: Scrape
    now: Scrape


def scrape(text: str) -> Scrape:
    """Every sample of a text exposition."""
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset({**TARGET, **sample.labels}.items())
            found.setdefault(sample.name, {})[labels] = float(sample.value)
    return found


def fires(expression: str, history: History) -> bool:
    """Whether the comparison holds for any series."""
    return _Reader(expression, history).verdict()


def names_in(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    return set(re.findall(r"[a-z_][a-z0-9_]*(?=\s*(?:\{|\[|\s[<>/+]|\s*\)|$))", expression)) - {"le"}


class _Reader:
    """Reads an expression from left to right and computes as it goes."""

    def __init__(self, expression: str, history: History) -> None:
        self._tokens = _tokens(expression)
        self._next = next(self._tokens)
        self._history = history

    def verdict(self) -> bool:
        left = self._sum()
        holds = COMPARISONS[self._take()]
        right = self._sum()
        assert not self._next, f"{self._next!r} is more than the rules may use"
        return any(holds(a, b) for a, b in _pairs(left, right))

    def _sum(self) -> Series:
        total = self._quotient()
        while self._next in {"+", "-"}:
            total = _combine(ARITHMETIC[self._take()], total, self._quotient())
        return total

    def _quotient(self) -> Series:
        quotient = self._atom()
        while self._next == "/":
            self._take()
            if self._next == "ignoring":
                self._skip("ignoring", "(", "le", ")")
            quotient = _combine(ARITHMETIC["/"], quotient, self._atom())
        return quotient

    def _atom(self) -> Series:
        token = self._take()
        if token == "(":
            inner = self._sum()
            self._skip(")")
            return inner
        if token == "increase":
            self._skip("(")
            later, earlier = self._selected(self._take())
            self._take()  # the range: the scrapes stand that far apart
            self._skip(")")
            return {labels: later[labels] - earlier[labels] for labels in later if labels in earlier}
        if token[0].isdigit():
            return {frozenset(): float(token)}
        return self._selected(token)[0]

    def _selected(self, name: str) -> tuple[Series, Series]:
        wanted: set[tuple[str, str]] = set()
        if self._next == "{":
            self._take()
            label = self._take()
            self._skip("=")
            wanted.add((label, self._take().strip('"')))
            self._skip("}")
        return _matching(self._history.now, name, wanted), _matching(self._history.before, name, wanted)

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens)
        return token

    def _skip(self, *tokens: str) -> None:
        for token in tokens:
            taken = self._take()
            assert taken == token, f"{token!r} was expected, not {taken!r}"


def _tokens(expression: str) -> Iterator[str]:
    yield from TOKEN.findall(expression)
    yield ""
    yield ""


def _matching(found: Scrape, name: str, wanted: set[tuple[str, str]]) -> Series:
    """Series of a name with these labels; what was asked for is not needed to tell them apart."""
    series = found.get(name, {})
    return {frozenset(labels - wanted): value for labels, value in series.items() if wanted <= labels}


def _combine(combine: Callable[[float, float], float], left: Series, right: Series) -> Series:
    if len(left) == 1 and frozenset() in left:
        return {labels: combine(left[frozenset()], value) for labels, value in right.items()}
    return {labels: combine(value, right[labels]) for labels, value in left.items() if labels in right}


def _pairs(left: Series, right: Series) -> Iterator[tuple[float, float]]:
    (threshold,) = right.values()
    for value in left.values():
        yield value, threshold
