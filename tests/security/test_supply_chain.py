"""What is installed is what was pinned, and what a server is made of is written down."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from docs import materials
from docs.materials import Pin, read_pins
from tests.tidy.repository import ROOT

FILES = ("requirements.txt", "requirements-dev.txt", "requirements-build.txt")
BILLS = materials.files()
each_client = pytest.mark.parametrize("client", materials.NPM, ids=lambda folder: folder.name)
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


@each_client
def test_a_replaced_package_of_npm_is_not_installed(client: Path) -> None:
    """Every package of the lock file has the digest of its bytes; npm refuses any other."""
    found = npm_packages(client)
    assert found
    assert [name for name, pin in found.items() if not pin["integrity"].startswith("sha512-")] == []


@each_client
def test_the_lock_file_of_npm_names_no_place(client: Path) -> None:
    """Packages come from the registry of whoever installs them: none has an address in the lock file."""
    assert [name for name, pin in npm_packages(client).items() if "resolved" in pin] == []
    assert "omit-lockfile-registry-resolved=true" in npm_settings(client)


@each_client
def test_a_package_of_npm_runs_nothing_while_it_is_installed(client: Path) -> None:
    """npm runs no script of a package; and what is asked for is asked for by its exact version."""
    assert "ignore-scripts=true" in npm_settings(client)
    manifest = json.loads((client / "package.json").read_text(encoding="utf-8"))
    asked = manifest["dependencies"] | manifest["devDependencies"]
    assert [name for name, version in asked.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []


def npm_packages(client: Path) -> dict[str, Any]:
    """What is installed, by where; not the package itself."""
    lock = json.loads((client / "package-lock.json").read_text(encoding="utf-8"))
    return {name: pin for name, pin in lock["packages"].items() if name}


def npm_settings(client: Path) -> list[str]:
    return (client / ".npmrc").read_text(encoding="utf-8").splitlines()


def test_the_files_agree_on_versions() -> None:
    """What the server runs with is what its tests ran with."""
    tested = {pin.name: (pin.version, pin.hashes) for pin in pins("requirements-dev.txt")}
    for file in FILES:
        assert {pin.name: (pin.version, pin.hashes) for pin in pins(file)}.items() <= tested.items()


@pytest.mark.parametrize("path", BILLS, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_unknown_component_is_in_no_bill(path: Path) -> None:
    """The bills of materials are made from the pins as they are."""
    assert path.read_text(encoding="utf-8") == BILLS[path], "the pins have moved on: make docs"


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
    addresses = {address for text in BILLS.values() for address in re.findall(r"\w+://[^/\"]+", text)}
    assert addresses == {"http://cyclonedx.org"}


@each_client
def test_the_bill_of_a_client_names_what_is_installed_with_it(client: Path) -> None:
    """What npm installs for an application, with the digest of each; no tool, and nothing that it brings."""
    made = materials.npm_bill(json.loads((client / "package-lock.json").read_text(encoding="utf-8")))
    asked = json.loads((client / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert asked.items() <= {one["name"]: one["version"] for one in made["components"]}.items()
    assert all(len(one["hashes"][0]["content"]) == 128 for one in made["components"])
    (_, *others) = made["dependencies"]
    needed = {ref for one in made["dependencies"] for ref in one["dependsOn"]}
    assert needed == {one["ref"] for one in others}


def test_a_line_that_is_no_pin_is_not_passed_over() -> None:
    """A requirement without a version would be missing from the bill."""
    with pytest.raises(ValueError, match="not a pin"):
        read_pins("aiohttp==3.14.5 \\\nrequests>=2\n")
