"""What people see of others: one line that shows what it holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.shown_text import shown_lines, shown_text

STAYS = {
    "a name": "Ann Example",
    "accents": "Zoë Ångström",
    "a combining mark": "e\u0301",
    "Chinese": "王小明",
    "Hebrew": "שלום",
    "Persian with a non-joiner": "می\u200cخواهم",
    "Hindi with a joiner": "क्\u200dष",
    "Kannada with a non-joiner": "ರಾಜ್\u200cಕುಮಾರ್",
    "a family": "👨\u200d👩\u200d👧",
    "a doctor with a skin tone": "👩🏽\u200d⚕\ufe0f",
    "a rainbow flag": "🏳\ufe0f\u200d🌈",
    "a keycap": "7\ufe0f\u20e3",
    "the flag of Wales": "🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
    "a Japanese name with a variant": "葛\U000e0100城",
}
LOSES = {
    "nul": ("a\0b", "a b"),
    "escape": ("\x1b[31mred", "[31mred"),
    "a newline": ("Ann\nBen: hi", "Ann Ben: hi"),
    "line separators": ("a\u2028b\u2029c\x85d", "a b c d"),
    "a direction override": ("gpj\u202eexe", "gpjexe"),
    "isolates": ("\u2066a\u2069", "a"),
    "marks of direction": ("a\u200e\u200f\u061cb", "ab"),
    "zero-width spaces": ("ad\u200bmin\ufeff\u2060", "admin"),
    "a joiner between Latin letters": ("ad\u200dmin", "admin"),
    "a non-joiner at either end": ("\u200cمی\u200c", "می"),
    "a joiner after a joiner": ("👨\u200d\u200d👩", "👨\u200d👩"),
    "a joiner between marks": ("a-\u200d-b", "a--b"),
    "a selector after a letter": ("a\ufe0fb", "ab"),
    "hidden tags": ("a\U000e0061\U000e0062b", "ab"),
    "a soft hyphen": ("ad\u00admin", "admin"),
    "blank letters": ("\u3164\u2800\u115f", ""),
    "half a pair": ("a\ud800b", "ab"),
    "spaces": ("  a \t \u00a0\u3000 b ", "a b"),
    "only what shows nothing": ("\u200b\u202e\0\n", ""),
}


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_what_shows_stays(text: str) -> None:
    """Names of every script and emoji that are made of several stay as they were."""
    assert shown_text(text) == text


@pytest.mark.parametrize(("text", "shown"), LOSES.values(), ids=LOSES)
def test_what_hides_goes(text: str, shown: str) -> None:
    """Controls become a space; what shows nothing or turns the text goes."""
    assert shown_text(text) == shown


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\u200c\u200d\ufe0f\u20e3👨क्می \u202e"))))
def test_a_shown_text_is_shown_as_it_is(text: str) -> None:
    """Nothing is left for a second look: what was stored compares equal to what is asked for."""
    assert shown_text(shown_text(text)) == shown_text(text)


def test_lines_stay_lines() -> None:
    """Text of several lines loses the same within each line."""
    assert shown_lines("\na\u202eb\r\n\x1b[2Jc\n\n") == "ab\n[2Jc"
