"""The receiver of docs/delivery.md is run as it stands there."""

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "delivery.md"
SECRET, BODY, NOW = "whs_secret", b'{"event_id":"evt_1"}', 1_700_000_000


def sample() -> dict[str, Any]:
    code = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    found: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), found)
    return found


def header(at: int, secret: str = SECRET, body: bytes = BODY) -> str:
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


@pytest.mark.parametrize(
    ("age", "accepted"), [(0, True), (299, True), (-299, True), (301, False), (-301, False)]
)
def test_a_delivery_is_taken_for_five_minutes(age: int, accepted: bool) -> None:
    """A delivery that was recorded and is sent again later is refused; clocks may differ as much."""
    assert sample()["is_from_parley"](SECRET, header(NOW - age), BODY, NOW) is accepted


@pytest.mark.parametrize(
    "wrong",
    [
        header(NOW, secret="other"),
        header(NOW, body=b"{}"),
        header(NOW).replace(f"t={NOW}", f"t={NOW - 1}"),
        f"t={NOW}",
        "t=soon,v1=00",
        "t=,v1=",
        "",
        "v1,t",
        f"t={NOW},v1=é",
    ],
)
def test_anything_else_is_refused(wrong: str) -> None:
    """Another secret, body or time, and whatever is no signature; nothing raises."""
    assert sample()["is_from_parley"](SECRET, wrong, BODY, NOW) is False
