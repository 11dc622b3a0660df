"""The files of the repository, and how a breach of a rule is told."""

import ast
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PYTHON_FOLDERS = ("src", "tests", "bench", "docs", "ops")


class Breach(NamedTuple):
    path: str
    line: int
    says: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.says}"


@dataclass(frozen=True)
class Source:
    """A file's text; the path is relative to the root and need not exist, so that samples can be made up."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def breach(self, line: int, says: str) -> Breach:
        return Breach(self.path, line, says)


def assert_none(breaches: Iterable[Breach], because: str) -> None:
    """Fail with one line per breach and the reason for the rule."""
    found = sorted(breaches)
    assert not found, "\n".join([because, *map(str, found)])


def texts(suffix: str = "") -> list[Source]:
    """Every text file that is in git or about to be, as far as its name ends so."""
    return [source for source in _all_texts() if source.path.endswith(suffix)]


def python_sources(*folders: str) -> list[Source]:
    """Every Python file below these folders, or below all folders that hold Python."""
    inside = tuple(f"{folder}/" for folder in folders or PYTHON_FOLDERS)
    found = [source for source in texts(".py") if source.path.startswith(inside)]
    assert found, f"a rule must have something to check, and there is no Python in {' '.join(inside)}"
    return found


@cache
def _all_texts() -> list[Source]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    sources = []
    for path in sorted(set(filter(None, listing.split("\0")))):
        try:
            sources.append(Source(path, (ROOT / path).read_text(encoding="utf-8")))
        except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
            continue  # Deleted but not yet committed, or no text: no rule here speaks about it.
    return sources
