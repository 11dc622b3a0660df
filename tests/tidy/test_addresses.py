"""Rule: the repository stands alone: it names no path of one machine and no registry."""

import re
from collections.abc import Iterator

import pytest

from tests.tidy.repository import Breach, Source, assert_none, texts

# The patterns are written so that this file does not match itself.
FOREIGN = {
    "a folder outside the repository": r"\.\./share[d]",
    "a path of one machine": r"(?<![\w.*~-])/(wor[k]|roo[t])/",
    "a package registry": r"pyp[i]\.org|pythonhoste[d]\.org|npmj[s]\.(org|com)|yarnpk[g]\.com|"
    r"repo1?\.mave[n]|artifactor[y]|inde[x]-url|find-link[s]|trusted-hos[t]",
}


def foreign_addresses(source: Source) -> Iterator[Breach]:
    for number, line in enumerate(source.text.splitlines(), 1):
        for what, pattern in FOREIGN.items():
            if found := re.search(pattern, line, re.IGNORECASE):
                yield source.breach(number, f"names {what}: {found[0]}")


def test_no_file_names_a_foreign_address() -> None:
    """No file in git refers to a machine's path or a registry's address."""
    breaches = [breach for source in texts() for breach in foreign_addresses(source)]
    assert_none(breaches, "a clone must work anywhere: refer to files of the repository only")


@pytest.mark.parametrize(
    "line",
    [
        "see ../{}/design".format("shared"),
        "cd /{}/main".format("work"),
        'open("/{}/.cache")'.format("root"),
        "https://{}.org/simple".format("pypi"),
        "https://files.{}.org/packages".format("pythonhosted"),
        '"resolved": "https://registry.{}.org/ws"'.format("npmjs"),
        "--extra-{}-url https://mirror.example".format("index"),
    ],
)
def test_a_foreign_address_is_caught(line: str) -> None:
    """Each kind of address that means nothing elsewhere is a breach."""
    assert list(foreign_addresses(Source("sample.md", line)))


@pytest.mark.parametrize(
    "line", ["docs/work/plan.md", "[shared](../docs/shared.md)", "GET /roots/", "index urls"]
)
def test_an_own_address_passes(line: str) -> None:
    """Paths within the repository and look-alikes are no breach."""
    assert not list(foreign_addresses(Source("sample.md", line)))
