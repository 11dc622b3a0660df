"""Writes the bills of materials of a server and of the clients in TypeScript from the pins: `make docs`.

They are CycloneDX 1.6. The server's, docs/sbom.cdx.json, has every package of requirements.txt with who needs
it, and what is copied into the tree; the sbom.cdx.json of each client what npm installs with it.
They have no time, no address of an index and no path of a machine, so the same pins make the same files.
"""

from __future__ import annotations

import base64
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
NPM = tuple(ROOT / "clients" / name for name in ("typescript", "web", "console"))
NPM_BILL = "sbom.cdx.json"
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
    """What a server is made of."""
    refs = {NAME: NAME} | {pin.name: pin.purl for pin in pins}
    needs: dict[str, list[str]] = {ref: [] for ref in refs.values()}
    for pin in pins:
        for name in pin.needed_by:
            if pin.purl not in needs[refs[name]]:
                needs[refs[name]].append(pin.purl)
    copied = [_copied(path) for path in sorted(COPIED.iterdir()) if path.is_dir()]
    needs[NAME] += [component["bom-ref"] for component in copied]
    needs |= {component["bom-ref"]: [] for component in copied}
    components = [_library(pin.name, pin.version, pin.purl) for pin in pins] + copied
    return _document("application", f"pkg:pypi/{NAME}@{__version__}", components, needs)


def npm_bill(lock: dict[str, Any]) -> dict[str, Any]:
    """What a client in TypeScript is made of: not its tools, and not what an application brings."""
    itself = lock["name"]
    packages = {
        path.rpartition("node_modules/")[2]: package
        for path, package in lock["packages"].items()
        if path and not any(package.get(kind) for kind in ("dev", "devOptional", "peer"))
    }
    refs = {name: f"pkg:npm/{name.replace('@', '%40')}@{one['version']}" for name, one in packages.items()}
    components = [
        _library(name, one["version"], refs[name])
        | {"hashes": [{"alg": "SHA-512", "content": _hex(one["integrity"])}]}
        for name, one in packages.items()
    ]
    needs = {itself: _needed(lock["packages"][""], refs)}
    needs |= {refs[name]: _needed(one, refs) for name, one in packages.items()}
    kind = "library" if itself == NAME else "application"
    return _document(kind, f"pkg:npm/{itself}@{lock['version']}", components, needs, itself)


def _needed(package: dict[str, Any], refs: dict[str, str]) -> list[str]:
    return [refs[name] for name in package.get("dependencies", {})]


def _hex(integrity: str) -> str:
    return base64.b64decode(integrity.removeprefix("sha512-")).hex()


def _document(
    kind: str,
    purl: str,
    components: list[dict[str, Any]],
    needs: dict[str, list[str]],
    name: str = NAME,
) -> dict[str, Any]:
    """A bill, as CycloneDX has it."""
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": kind,
                "bom-ref": name,
                "name": name,
                "version": __version__,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": purl,
            }
        },
        "components": components,
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


def files() -> dict[Path, str]:
    """The text of each bill."""
    pins = read_pins(PINS.read_text(encoding="utf-8"))
    locks = {folder: (folder / "package-lock.json").read_text(encoding="utf-8") for folder in NPM}
    made = {folder / NPM_BILL: npm_bill(json.loads(lock)) for folder, lock in locks.items()}
    made[BILL] = bill(pins)
    return {path: json.dumps(one, indent=1) + "\n" for path, one in made.items()}
