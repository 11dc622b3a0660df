"""Rule: the glossary explains words that the code uses."""

import re

from tests.tidy.repository import ROOT, python_sources

ROW = re.compile(r"^\| (\*\*.+?\*\*) \|", re.MULTILINE)
WORD = re.compile(r"\*\*(.+?)\*\*")


def words_of(glossary: str) -> list[str]:
    return [word for row in ROW.findall(glossary) for word in WORD.findall(row)]


def unused(words: list[str], code: str) -> list[str]:
    """Words that stand nowhere in the code, in no form: not in names, prose or strings."""
    text = re.sub(r"[\W_]+", " ", code.lower())
    return [word for word in words if re.sub(r"[\W_]+", " ", word) not in text]


def test_every_word_is_used() -> None:
    """No word is explained that nothing is called."""
    glossary = (ROOT / "docs/GLOSSARY.md").read_text("utf-8")
    assert len(words_of(glossary)) > 50
    assert not unused(words_of(glossary), "\n".join(source.text for source in python_sources("src")))


def test_a_word_that_nobody_uses_is_caught() -> None:
    """A word that the code has left is seen, whatever form the others have."""
    words = words_of("| word | meaning |\n|---|---|\n| **close code**, **lobby** | … |\n| **ghost** | … |\n")
    assert unused(words, "close_code = 1\nclass Lobby: ...") == ["ghost"]


def test_no_word_is_explained_twice() -> None:
    """One word, one row."""
    words = words_of((ROOT / "docs/GLOSSARY.md").read_text("utf-8"))
    assert sorted(words) == sorted(set(words))
