"""What a search asks for, what is indexed of a log, and in which order hits are listed. Pure.

A search has words. A message is found if it has all of them: whole words, or words that begin so where the
search has a `*`. Letters are compared without case and accents. Every other character of the search only
separates words: nothing that a person writes is an operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from parley.core.message_actions import DELETE, EDIT, MESSAGE
from parley.errors import BAD_REQUEST, Refusal
from parley.wire.frames import Entry
from parley.wire.limits import SEARCH_CHARS_MAX, SEARCH_WORDS_MAX, SEQUENCE_MAX

PREFIX = "*"
PREFIX_CHARS_MIN = 2
"""A shorter beginning of a word would find nearly everything."""
GLUE = "\x1f"
"""Put around letters that are words of their own, and not shown in snippets. It separates words."""
HIT_BEGINS, HIT_ENDS = "\u2068", "\u2069"
"""What stands around each hit of a snippet: isolates, which no terminal and no page shows."""
LEFT_OUT = "…"
SNIPPET_WORDS = 24
SNIPPET_CHARS_MAX = 400
"""Of a snippet with words that are longer than people write them."""
INDEXED_TYPES = "text/"

UNSPACED = re.compile(
    "([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)
"""Letters of scripts that write words without spaces, or glue endings to them: each is a word of its own."""
MARKS = str.maketrans("", "", HIT_BEGINS + HIT_ENDS)

EMPTY_SEARCH = BAD_REQUEST.because("q needs a letter or a digit")
LONG_SEARCH = BAD_REQUEST.because(f"q has at most {SEARCH_CHARS_MAX} characters and {SEARCH_WORDS_MAX} words")
SHORT_PREFIX = BAD_REQUEST.because(f"a word with * needs {PREFIX_CHARS_MIN} characters or more before it")


def expression_of(text: str) -> str | Refusal:
    """A search of a person as an expression of FTS5, or why it is refused.

    Each word is a quoted string, in which only the quotation mark has a meaning; it is taken out.
    """
    if len(text) > SEARCH_CHARS_MAX:
        return LONG_SEARCH
    words: list[str] = []
    for word in text.translate(MARKS).split():
        letters = sum(map(str.isalnum, word))
        is_prefix = word.endswith(PREFIX)
        if not letters:
            continue
        if is_prefix and letters < PREFIX_CHARS_MIN:
            return SHORT_PREFIX
        words.append(f'"{separated(_plain(word))}"' + (PREFIX if is_prefix else ""))
    if not words:
        return EMPTY_SEARCH
    return LONG_SEARCH if len(words) > SEARCH_WORDS_MAX else " AND ".join(words)


def _plain(word: str) -> str:
    """Without what ends a string of FTS5, whatever the driver does with it."""
    return word.replace('"', " ").replace("\0", " ")


def separated(text: str) -> str:
    """A text whose words are apart."""
    if "\0" in text:
        text = text.replace("\0", " ")
    return text if text.isascii() else UNSPACED.sub(rf"{GLUE}\1{GLUE}", text.translate(MARKS))


def joined(snippet: str) -> str:
    """A snippet of a text that was separated, on one line. Neighbouring hits become one."""
    line = " ".join(snippet.replace(GLUE, "").replace(HIT_ENDS + HIT_BEGINS, "").split())
    if len(line) <= SNIPPET_CHARS_MAX:
        return line
    begins = max(line.find(HIT_BEGINS), 0)
    cut = line[begins : begins + SNIPPET_CHARS_MAX]
    is_open = cut.count(HIT_BEGINS) > cut.count(HIT_ENDS)
    return cut + (HIT_ENDS if is_open else "") + LEFT_OUT


# What is indexed


def is_indexed(entry: Entry) -> bool:
    """Whether an entry can be found: a message with a text that was not deleted."""
    return (
        entry.kind == MESSAGE
        and entry.deleted is not True
        and entry.content_type.lower().startswith(INDEXED_TYPES)
    )


class IndexBatch(Struct):
    """What a part of a log changes in the index of its chat. Applied together, or not at all.

    `after`: where the index is before it, `through` after it. `at`: the highest time of a message so far, so
    that times rise with positions. `added`: messages with their time and text. `changed`: other texts of
    messages, if they are in the index. `removed`: messages that are found no more.
    """

    epoch: int
    after: int
    through: int
    at: int
    added: dict[int, tuple[int, str]] = field(default_factory=dict)
    changed: dict[int, str] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)


def batch_of(
    entries: Iterable[tuple[Entry, int]],
    targets: Mapping[str, int],
    epoch: int,
    after: int,
    through: int,
    at: int,
) -> IndexBatch:
    """What these entries change. Each comes with its time; `targets`: where the messages are that edits and
    deletes are about, if not among them.
    """
    batch, places = IndexBatch(epoch, after, through, at), dict(targets)
    for entry, created_ms in entries:
        place = places.get(entry.target_id or "")
        if entry.kind == MESSAGE:
            batch.at = max(batch.at, created_ms)
            places[entry.message_id] = entry.sequence
            if is_indexed(entry):
                batch.added[entry.sequence] = (batch.at, separated(entry.content))
        elif entry.kind == EDIT and place is not None and entry.deleted is not True:
            _change(batch, place, separated(entry.content))
        elif entry.kind == DELETE and place is not None:
            batch.added.pop(place, None)
            batch.changed.pop(place, None)
            batch.removed.add(place)
    return batch


def _change(batch: IndexBatch, place: int, text: str) -> None:
    if place in batch.added:
        batch.added[place] = (batch.added[place][0], text)
    elif place not in batch.removed and not batch.after < place <= batch.through:
        batch.changed[place] = text


def unknown_targets(entries: Sequence[Entry]) -> list[str]:
    """The messages that edits and deletes among these are about, and that are not among them."""
    here = {entry.message_id for entry in entries}
    found = {entry.target_id for entry in entries if entry.kind in (EDIT, DELETE) and entry.target_id}
    return sorted(found - here)


# Order


class HitPlace(Struct, frozen=True, order=True):
    """Where a message is among all that a person searches: by time, then by chat, then by position."""

    at: int
    chat_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.at}.{self.chat_id}.{self.sequence}"


def place_of(text: str) -> HitPlace | None:
    """The place that was written as `text`; None if it is none."""
    at, _, rest = text.partition(".")
    chat_id, _, sequence = rest.rpartition(".")
    numbers = (at, sequence)
    if not chat_id or not all(
        one.isascii() and one.isdigit() and len(one) <= len(str(SEQUENCE_MAX)) for one in numbers
    ):
        return None
    return HitPlace(int(at), chat_id, int(sequence))
