"""Rule: a generated part of a page says what the code says, and nothing of the contract is left out."""

import re

import pytest
from msgspec import structs

from docs import generate, typescript
from docs.job_table import Place, table_of
from parley import config, model
from parley.core.jobs import Job
from parley.core.message_actions import EDIT_WINDOW
from tests.tidy.repository import ROOT, python_sources

CONTRACT = {
    str(path.relative_to(ROOT)): text for path, text in typescript.files(generate.all_refusals()).items()
}


def page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", generate.PAGES)
def test_generated_parts_are_fresh(path: str) -> None:
    """Making a page anew changes nothing."""
    assert generate.render(page(path)) == page(path), "the code has moved on: run make docs"


@pytest.mark.parametrize("path", CONTRACT)
def test_the_contract_for_typescript_is_fresh(path: str) -> None:
    """The TypeScript SDK is compiled against the frames, bodies, routes and limits of this server."""
    assert CONTRACT[path] == page(path), "the code has moved on: run make docs"


def test_every_part_stands_in_a_page() -> None:
    """Each frame, table and list that can be generated is shown, and shown once."""
    shown = [name for path in generate.PAGES for name in generate.parts_in(page(path))]
    assert sorted(shown) == sorted(generate.PARTS)


def test_every_marker_is_understood() -> None:
    """A marker with a typing error is not silently left as it is."""
    text = "".join(page(path) for path in generate.PAGES)
    begun = re.findall(r"<!-- generated: ", text)
    ended = re.findall(r"<!-- end of ", text)
    assert len(begun) == len(ended) == len(generate.PARTS)


def test_a_stale_part_is_caught() -> None:
    """What stands between the markers is replaced as a whole, and the rest of the page is kept."""
    stale = "before\n<!-- generated: entry (make docs) -->\nold\n<!-- end of entry -->\nafter\n"
    fresh = generate.render(stale)
    assert fresh != stale
    assert "old" not in fresh
    assert fresh.startswith("before\n")
    assert fresh.endswith("\nafter\n")
    assert generate.render(fresh) == fresh


def test_an_unknown_part_is_caught() -> None:
    """A part that nobody can make is an error, not an empty place."""
    with pytest.raises(KeyError):
        generate.render("<!-- generated: nothing (make docs) -->\n<!-- end of nothing -->")


def test_every_refusal_code_is_listed() -> None:
    """A client finds each code that any room of the server refuses with."""
    rooms = [source for source in python_sources("src") if not source.path.startswith("src/parley/client/")]
    used = {code for room in rooms for code in re.findall(r'\bRefusal\(\s*"(\w+)"', room.text)}
    listed = set(re.findall(r"^\| `([a-z_]+)` \| \d{3} \|", page("docs/PROTOCOL.md"), re.MULTILINE))
    assert listed == used


def undefined_types(text: str) -> set[str]:
    """Types that a table of the protocol names, and no table defines with its fields."""
    cells = [row.split(" | ", 1) for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE) if " | " in row]
    named = {name for _, rest in cells for name in re.findall(r"`([A-Z]\w*[a-z]\w*)`", rest)}
    defined = {name for first, _ in cells for name in re.findall(r"^`([A-Z]\w*[a-z]\w*)`$", first)}
    return named - defined


def test_every_type_of_the_protocol_is_defined() -> None:
    """Whoever meets the name of a type in a table of the protocol finds its fields there."""
    assert not undefined_types(page("docs/PROTOCOL.md"))


def test_an_undefined_type_is_caught() -> None:
    """A type in a list, in a choice, or the body of a request counts as named; one with fields is defined."""
    text = "| `POST /v1/teas` | makes tea | `NewTea` | 201 `Tea` |\n| `NewTea` | `cups` list of `Cup` |\n"
    assert undefined_types(text) == {"Tea", "Cup"}


def test_a_field_is_called_as_on_the_wire() -> None:
    """A field that the code calls differently stands in the tables by the name that travels."""
    row = generate.body_fields(model.QuietHours, is_asked=True)
    assert "`from` string" in row
    assert "starts" not in row


def test_every_kind_and_change_is_told() -> None:
    """A client finds each kind of entry, and each action that the content of a change can have."""
    entry = page("docs/PROTOCOL.md").partition("### The entry")[2].partition("\n### ")[0]
    words = {*model.Kind, *model.Action, EDIT_WINDOW}
    assert not {word for word in words if f"`{word}`" not in entry and f'"action": "{word}"' not in entry}


async def _nothing() -> None:
    """A run of a job that has nothing to do."""


def test_a_job_that_does_not_say_what_it_does_is_caught() -> None:
    """A job without words for operators cannot be listed; with them it can."""
    job = Job(name="tea", does="boils water", run=_nothing, interval_seconds=60.0, timeout_seconds=None)
    told = Place({"tea": job}, {"tea": []}, {"tea": []})
    silent = Place({"tea": structs.replace(job, does="")}, told.roles, told.needs)
    assert "| `tea` | every node |  | 60 s | boils water |" in table_of(told, told)
    with pytest.raises(AssertionError):
        table_of(silent, silent)


def test_every_key_has_its_meaning() -> None:
    """A configuration key without words for the operator cannot be added."""
    keys = {f"{section}.{key}" for section, names in config.sections().items() for key in names}
    assert keys == set(generate.CONFIGURATION)
