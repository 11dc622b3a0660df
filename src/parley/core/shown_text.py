"""What people see of others beside messages is one line that shows what it holds. Pure.

Display names, what people say about themselves, titles, names of devices and files go through `shown_text`:

- What ends a line or moves the cursor (controls such as NUL and ESC, line breaks, tabs) becomes a space, and
  several spaces become one; none stays at either end.
- What shows nothing or turns the direction of text goes: format characters (the bidirectional overrides and
  isolates, zero-width spaces, the byte order mark, tags), characters that are blank by design, halves of
  surrogate pairs.
- What joins or changes the character before it stays only where it does so: a joiner after a virama (Indic
  scripts), between two letters of a script from right to left (Persian) or between two emoji; a variation
  selector after a symbol, or before a keycap; an ideographic one after a letter of those scripts; the tags of
  a flag after a black flag.

So an emoji of a family and a Persian name stay as they were, and `ad<U+200D>min` is `admin`.
"""

from __future__ import annotations

import re
import unicodedata

ZWNJ, ZWJ = "\u200c", "\u200d"
KEYCAP = "\u20e3"
SKIN_TONES = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
EMOJI_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10)))
LETTER_SELECTORS = frozenset([*map(chr, range(0xE0100, 0xE01F0)), "\u180b", "\u180c", "\u180d", "\u180f"])
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc")
"""Letters, marks and symbols by their category, which show nothing: fillers of Hangul, the empty Braille."""
BREAKS = frozenset(("Cc", "Zl", "Zp", "Zs"))
SUBDIVISION_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f")
VIRAMA = 9
"""The combining class of marks that make a letter of an Indic script join the next one."""


def shown_text(text: str) -> str:
    """As others see it. The same again for what comes out; may be empty."""
    kept = list[str]()
    flags = {flag.start(): flag.group() for flag in SUBDIVISION_FLAG.finditer(text)}
    until = 0
    for at, char in enumerate(text):
        if at < until:
            continue
        if at in flags:
            kept += flags[at]
            until = at + len(flags[at])
        elif unicodedata.category(char) in BREAKS:
            kept.append(" ")
        elif _is_shown(char, kept, text[at + 1 : at + 2]):
            kept.append(char)
    return " ".join("".join(kept).split())


def shown_lines(text: str) -> str:
    """The same for text of several lines, each as others see it."""
    return "\n".join(map(shown_text, text.splitlines())).strip("\n")


def _is_shown(char: str, before: list[str], after: str) -> bool:
    last = before[-1] if before else ""
    if char in (ZWNJ, ZWJ):
        return last != "" and after != "" and _is_joined(char, before, after)
    if char in EMOJI_SELECTORS:
        return last != "" and (after == KEYCAP or unicodedata.category(last)[0] in "SP")
    if char in LETTER_SELECTORS:
        return last != "" and unicodedata.category(last) == "Lo"
    return char not in BLANK and unicodedata.category(char) not in ("Cf", "Cs")


def _is_joined(joiner: str, before: list[str], after: str) -> bool:
    """Whether this joiner changes how its neighbours look."""
    if unicodedata.combining(before[-1]) == VIRAMA:
        return unicodedata.category(after)[0] == "L" and after not in BLANK
    if joiner == ZWJ and (_is_symbol(before[-1]) or before[-1] in EMOJI_SELECTORS | SKIN_TONES):
        return _is_symbol(after)
    char = next((one for one in reversed(before) if unicodedata.category(one)[0] != "M"), "")
    return _is_from_right(char) and _is_from_right(after)


def _is_symbol(char: str) -> bool:
    return unicodedata.category(char)[0] == "S" and char not in BLANK


def _is_from_right(char: str) -> bool:
    """A letter of a script that is written from right to left, whose letters join."""
    return char != "" and unicodedata.bidirectional(char) in ("AL", "R")
