"""What is installed is what was pinned, and what a server is made of is written down."""

import re
import tomllib

import pytest

from docs import materials
from docs.materials import Pin, read_pins
from tests.tidy.repository import ROOT

FILES = ("requirements.txt", "requirements-dev.txt", "requirements-build.txt")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def pins(file: str) -> list[Pin]:
    return read_pins((ROOT / file).read_text(encoding="utf-8"))


def unchecked(makefile: str) -> list[str]:
    """Calls of pip that install something whose hash nobody compares."""
    calls = re.findall(r"^(?:INSTALL :=|\t).*\bpip install\b.*$", makefile, re.MULTILINE)
    return [call for call in calls if "--require-hashes" not in call and "--no-deps --editable ." not in call]


@pytest.mark.parametrize("file", FILES)
def test_a_replaced_package_is_not_installed(file: str) -> None:
    """Every pin has the hashes of its files, of all platforms, so that pip refuses any other."""
    found = pins(file)
    assert found
    assert [pin.name for pin in found if not pin.hashes] == []


def test_a_package_without_a_hash_is_not_installed() -> None:
    """Make installs nothing but the tree itself without comparing hashes."""
    assert unchecked(MAKEFILE) == []
    assert "$(INSTALL) --requirement requirements.txt" in MAKEFILE


def test_a_fetched_build_backend_is_not_run() -> None:
    """What builds the package is pinned too: pip does not fetch the newest one at install time."""
    (editable,) = re.findall(r"^.*--editable \..*$", MAKEFILE, re.MULTILINE)
    assert "--no-build-isolation" in editable
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {re.split(r"[<>=]", one)[0] for one in project["build-system"]["requires"]}
    assert needed <= {pin.name for pin in pins("requirements-build.txt")}


@pytest.mark.parametrize(
    "line", ["\tpip install --quiet requests", "\t$(BIN)/python -m pip install -r a.txt"]
)
def test_an_unchecked_install_is_caught(line: str) -> None:
    """A call of pip without hashes is found in whatever rule it stands."""
    assert unchecked(f"rule:\n{line}\n") == [line]


def test_the_files_agree_on_versions() -> None:
    """What the server runs with is what its tests ran with."""
    tested = {pin.name: (pin.version, pin.hashes) for pin in pins("requirements-dev.txt")}
    for file in FILES:
        assert {pin.name: (pin.version, pin.hashes) for pin in pins(file)}.items() <= tested.items()


def test_an_unknown_component_is_in_no_server() -> None:
    """The bill of materials is made from the pins as they are."""
    assert materials.BILL.read_text(encoding="utf-8") == materials.render(), (
        "the pins have moved on: make docs"
    )


def test_the_bill_names_everything_and_nothing_of_a_machine() -> None:
    """Each pin and each copied package, once, all of them reached from the root; no address of an index."""
    made = materials.bill(pins("requirements.txt"))
    names = [component["name"] for component in made["components"]]
    assert names == [*(pin.name for pin in pins("requirements.txt")), "swagger-ui-dist"]
    needs = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    reached, ahead = set[str](), [materials.NAME]
    while ahead:
        reached.add(ref := ahead.pop())
        ahead += [needed for needed in needs[ref] if needed not in reached]
    assert reached == {materials.NAME, *(component["bom-ref"] for component in made["components"])}
    addresses = set(re.findall(r"\w+://[^/\"]+", materials.render()))
    assert addresses == {"http://cyclonedx.org"}


def test_a_line_that_is_no_pin_is_not_passed_over() -> None:
    """A requirement without a version would be missing from the bill."""
    with pytest.raises(ValueError, match="not a pin"):
        read_pins("aiohttp==3.14.5 \\\nrequests>=2\n")
