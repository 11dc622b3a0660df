"""Whether a link may be used, and why not."""

import pytest
from msgspec.structs import replace

from parley.core.links import LinkState, decide_use, state_of
from parley.errors import LINK_EXPIRED, LINK_REVOKED, LINK_USED, NO_SUCH_LINK, Refusal
from parley.model import Link, LinkPurpose

LINK = Link(
    link_id="lnk_1",
    digest="digest",
    purpose=LinkPurpose.INVITE,
    created_by="user_1",
    created_at_ms=0,
    expires_at_ms=100,
    uses_max=2,
)


@pytest.mark.parametrize(
    ("changed", "now_ms", "refusal"),
    [
        ({}, 99, None),
        ({"used_by": ("a",)}, 99, None),
        ({"used_by": ("a", "b")}, 99, LINK_USED),
        ({}, 100, LINK_EXPIRED),
        ({"used_by": ("a", "b")}, 100, LINK_USED),
        ({"revoked_at_ms": 1}, 99, LINK_REVOKED),
        ({"revoked_at_ms": 1, "used_by": ("a", "b")}, 100, LINK_REVOKED),
        ({"digest": "other"}, 99, NO_SUCH_LINK),
        ({"purpose": LinkPurpose.PASSWORD_RESET}, 99, NO_SUCH_LINK),
        ({"digest": "other", "revoked_at_ms": 1}, 99, NO_SUCH_LINK),
    ],
)
def test_a_link_and_its_refusal(changed: dict[str, object], now_ms: int, refusal: Refusal | None) -> None:
    """Each for its own reason; a wrong token learns nothing."""
    assert decide_use(replace(LINK, **changed), "digest", LinkPurpose.INVITE, now_ms) == refusal


def test_no_link_at_all() -> None:
    """As if it had a wrong token."""
    assert decide_use(None, "digest", LinkPurpose.INVITE, 0) == NO_SUCH_LINK
    assert state_of(LINK, 0) is LinkState.OPEN
