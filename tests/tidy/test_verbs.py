"""Rule: the Makefile has the verbs of the house and no others."""

import re

from tests.tidy.repository import ROOT

VERBS = {
    "setup",
    "run",
    "test",
    "quick",
    "test-all",
    "check",
    "simulate",
    "mutants",
    "pages",
    "bench",
    "up",
    "down",
    "docs",
    "screenshots",
}


def verbs_of(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", makefile, re.MULTILINE)) - {"help"}


def test_the_makefile_has_the_verbs_of_the_house() -> None:
    """Whoever knows one verb list knows the Makefile."""
    assert verbs_of((ROOT / "Makefile").read_text(encoding="utf-8")) == VERBS


def test_another_verb_is_caught() -> None:
    """A target beyond the list is seen, a variable is not."""
    assert verbs_of("test: check\n\tpytest\nlint:\n\truff\nname := value\n") == {"test", "lint"}
