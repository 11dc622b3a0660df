"""Rule: a link in a page leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.tidy.repository import ROOT, Breach, Source, assert_none, texts

CODE_BLOCK = re.compile(r"^ *(```|~~~).*?^ *\1", re.DOTALL | re.MULTILINE)
CODE_SPAN = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^ *\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
NAMED = re.compile(r"\[(?:`([\w./]+?)(?:\(\))?`|(test_\w+))\]\(([^)\s]+\.py)\)")
REFERENCE = re.compile(r"\b(docs/[\w/-]+\.md)#([\w-]+)")
ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def dead_links(page: Source, root: Path = ROOT) -> Iterator[Breach]:
    """Relative links of a page whose file or heading does not exist."""
    text = blank(CODE_SPAN, blank(CODE_BLOCK, page.text))
    for found in LINK.finditer(text):
        target = found[1] or found[2]
        if ELSEWHERE.match(target):
            continue
        path, _, heading = target.partition("#")
        file = (root / page.path).parent / unquote(path) if path else root / page.path
        line = text.count("\n", 0, found.start()) + 1
        if not file.exists():
            yield page.breach(line, f"{target} leads to no file")
        elif heading and file.suffix == ".md" and unquote(heading) not in anchors(file.read_text("utf-8")):
            yield page.breach(line, f"{target} leads to no heading")


def dead_references(source: Source, root: Path = ROOT) -> Iterator[Breach]:
    """Headings of pages that code, rules and comments refer to and that do not exist."""
    for found in REFERENCE.finditer(source.text):
        file = root / found[1]
        if not file.exists() or found[2] not in anchors(file.read_text("utf-8")):
            yield source.breach(source.text.count("\n", 0, found.start()) + 1, f"{found[0]} leads nowhere")


def misplaced_names(page: Source, root: Path = ROOT) -> Iterator[Breach]:
    """Links on a name that lead to a Python file which neither is called so nor defines it."""
    for found in NAMED.finditer(page.text):
        name, file = found[1] or found[2], (root / page.path).parent / found[3]
        is_file = file.with_suffix("").as_posix().endswith(f"/{name.removesuffix('.py')}")
        if not is_file and file.exists() and not set(name.split(".")) <= names_in(file.read_text("utf-8")):
            line = page.text.count("\n", 0, found.start()) + 1
            yield page.breach(line, f"{name} is not defined in {found[3]}")


def names_in(text: str) -> set[str]:
    """The classes, functions and constants of a file."""
    return set(
        re.findall(r"^ *(?:(?:async )?def |class )?([A-Za-z_]\w*)(?=[(:]| *=| *: .*=)", text, re.MULTILINE)
    )


def blank(pattern: re.Pattern[str], text: str) -> str:
    """Take out what matches but keep the line numbers."""
    return pattern.sub(lambda found: "\n" * found[0].count("\n"), text)


def anchors(text: str) -> set[str]:
    """The names that headings get on a forge: lower case, spaces as hyphens, repeated ones numbered."""
    names: set[str] = set()
    for heading in HEADING.findall(blank(CODE_BLOCK, text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        repeated = sum(1 for known in names if re.fullmatch(re.escape(name) + r"(-\d+)?", known))
        names.add(f"{name}-{repeated}" if repeated else name)
    return names


def test_links_of_pages_resolve() -> None:
    """Every relative link in a Markdown page leads to a file and a heading that exist."""
    breaches = [breach for page in texts(".md") for breach in dead_links(page)]
    assert_none(breaches, "mend the link or write the page")


def test_linked_names_are_where_the_link_leads() -> None:
    """A link on a class, a function, a constant or a test leads to the file that defines it."""
    breaches = [breach for page in texts(".md") for breach in misplaced_names(page)]
    assert_none(breaches, "let the link lead to where the name is")


@pytest.mark.parametrize(
    "link",
    ["[`Gone`](a/room.py)", "[`Room.gone`](a/room.py)", "[`CHANGED`](a/room.py)", "[test_it](a/room.py)"],
)
def test_a_misplaced_name_is_caught(link: str, tmp_path: Path) -> None:
    """A link on a name that its file does not define is a breach."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/room.py").write_text("from x import CHANGED\nclass Room:\n    pass\n", encoding="utf-8")
    assert list(misplaced_names(Source("page.md", link), tmp_path))


@pytest.mark.parametrize(
    "link",
    ["[`room`](a/room.py)", "[`a/room`](a/room.py)", "[`Room.go()`](a/room.py)", "[`LIMIT`](a/room.py)"],
)
def test_a_name_in_its_place_passes(link: str, tmp_path: Path) -> None:
    """The file itself, and what it defines, are in their place."""
    (tmp_path / "a").mkdir()
    code = "LIMIT: int = 1\nclass Room:\n    async def go(self) -> None: ...\n"
    (tmp_path / "a/room.py").write_text(code, encoding="utf-8")
    assert not list(misplaced_names(Source("page.md", link), tmp_path))


def test_references_from_code_resolve() -> None:
    """A heading that anything but a page refers to, such as the runbook of an alert, exists."""
    others = [source for source in texts() if not source.path.endswith(".md")]
    assert_none((breach for source in others for breach in dead_references(source)), "mend the reference")


def test_a_dead_reference_is_caught(tmp_path: Path) -> None:
    """A reference to a heading that is not there is a breach, one that is there is none."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("# A heading\n", encoding="utf-8")
    page = "docs/page.md"
    source = Source("x.yml", f"url: {page}#a-heading\nurl: {page}#another\n")
    assert [breach.line for breach in dead_references(source, tmp_path)] == [2]


@pytest.mark.parametrize(
    "line",
    [
        "[gone](missing.md)",
        "![picture](img/missing.png)",
        "[gone](page.md#no-such-heading)",
        "[gone](#nowhere)",
        "[gone]: missing.md",
        '[gone](missing.md "title")',
    ],
)
def test_a_dead_link_is_caught(line: str, tmp_path: Path) -> None:
    """A link to a missing file or heading is a breach."""
    (tmp_path / "page.md").write_text("# A heading\n", encoding="utf-8")
    assert list(dead_links(Source("page.md", line), tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        "[page](page.md)",
        "[heading](page.md#group-commit-why)",
        "[web](https://example.com/x)",
        "`[code](missing.md)`",
        "```\n[code](missing.md)\n```",
    ],
)
def test_a_live_link_passes(line: str, tmp_path: Path) -> None:
    """Existing targets, other sites and code samples are no breach."""
    (tmp_path / "page.md").write_text("# Page\n\n## Group commit: `why`?\n", encoding="utf-8")
    assert not list(dead_links(Source("page.md", line), tmp_path))
