"""Writes the software bill of materials of a server, docs/sbom.cdx.json, from the pins: `make docs`.

It is CycloneDX 1.6: every package of requirements.txt with who needs it, and what is copied into the tree. It
has no time, no address of an index and no path of a machine, so the same pins make the same file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from parley import __version__

ROOT = Path(__file__).resolve().parents[1]
BILL = ROOT / "docs/sbom.cdx.json"
PINS = ROOT / "requirements.txt"
COPIED = ROOT / "src/parley/gateway/static"
NAME = "parley-chat"
COPIED_NAME = re.compile(r"(?P<name>swagger-ui)-(?P<version>[\d.]+)")

PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.!+-]+)( \\)?")
HASH = re.compile(r"    --hash=sha256:(?P<hash>[0-9a-f]{64})( \\)?")
NEEDED_BY = re.compile(r"    #(?: via)?\s*(?P<name>[\w.-]*)(?: \(.*\))?")


class Pin(Struct):
    """One package at one version: the hashes of its files, and which packages ask for it."""

    name: str
    version: str
    hashes: list[str] = []
    needed_by: list[str] = []

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def read_pins(text: str) -> list[Pin]:
    """The pins of a file that pip-compile wrote. ValueError names a line that is none of its kinds."""
    pins: list[Pin] = []
    for line in text.splitlines():
        if found := PIN.fullmatch(line):
            pins.append(Pin(found["name"], found["version"]))
        elif pins and (found := HASH.fullmatch(line)):
            pins[-1].hashes.append(found["hash"])
        elif pins and (found := NEEDED_BY.fullmatch(line)):
            pins[-1].needed_by += filter(None, [found["name"]])
        elif line and not line.startswith("#"):
            raise ValueError(f"not a pin of pip-compile: {line}")
    return pins


def bill(pins: list[Pin]) -> dict[str, Any]:
    """The document, as CycloneDX has it."""
    refs = {NAME: NAME} | {pin.name: pin.purl for pin in pins}
    needs: dict[str, list[str]] = {ref: [] for ref in refs.values()}
    for pin in pins:
        for name in pin.needed_by:
            if pin.purl not in needs[refs[name]]:
                needs[refs[name]].append(pin.purl)
    copied = [_copied(path) for path in sorted(COPIED.iterdir()) if path.is_dir()]
    needs[NAME] += [component["bom-ref"] for component in copied]
    needs |= {component["bom-ref"]: [] for component in copied}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": NAME,
                "name": NAME,
                "version": __version__,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": f"pkg:pypi/{NAME}@{__version__}",
            }
        },
        "components": [_library(pin.name, pin.version, pin.purl) for pin in pins] + copied,
        "dependencies": [{"ref": ref, "dependsOn": needed} for ref, needed in needs.items()],
    }


def _library(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _copied(folder: Path) -> dict[str, Any]:
    """A package whose files are in the tree, with the hash of each."""
    found = COPIED_NAME.fullmatch(folder.name)
    assert found is not None, folder
    name, version = f"{found['name']}-dist", found["version"]
    sums = (line.split() for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
    files = [
        {"type": "file", "name": file, "hashes": [{"alg": "SHA-256", "content": content}]}
        for content, file in sums
    ]
    return _library(name, version, f"pkg:npm/{name}@{version}") | {"components": files}


def render() -> str:
    return json.dumps(bill(read_pins(PINS.read_text(encoding="utf-8"))), indent=1) + "\n"


def write() -> bool:
    """Write the file if it is stale; returns whether it was."""
    text = render()
    if BILL.exists() and BILL.read_text(encoding="utf-8") == text:
        return False
    BILL.write_text(text, encoding="utf-8")
    return True
