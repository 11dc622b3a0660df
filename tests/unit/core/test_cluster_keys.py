"""Keys that are derived from a secret, and tags that are made with them."""

import pytest

from parley.core.cluster_keys import TAG_BYTES, ClusterKeys, KeyRing, derive_key


@pytest.mark.parametrize(
    ("secret", "salt", "info", "key"),
    [
        (
            "0b" * 22,
            "000102030405060708090a0b0c",
            "f0f1f2f3f4f5f6f7f8f9",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            "0b" * 22,
            "",
            "",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ],
)
def test_a_key_is_derived_as_the_rfc_says(secret: str, salt: str, info: str, key: str) -> None:
    """The vectors of RFC 5869 for SHA-256, the first and the third."""
    made = derive_key(bytes.fromhex(secret), bytes.fromhex(salt), bytes.fromhex(info), len(key) // 2)
    assert made.hex() == key


def test_a_tag_holds_for_its_data_alone() -> None:
    """Other data, another key, a cut or an empty tag are not accepted."""
    ring = KeyRing(b"one key")
    tag = ring.tag(b"data")
    assert len(tag) == TAG_BYTES
    assert ring.accepts(b"data", tag)
    assert not ring.accepts(b"date", tag)
    assert not KeyRing(b"another").accepts(b"data", tag)
    assert not any(ring.accepts(b"data", cut) for cut in (tag[:-1], b"", tag + b"\0"))


def test_the_first_secret_signs_and_each_is_accepted() -> None:
    """Nodes that are between two secrets understand each other, whichever of them signs."""
    here = ClusterKeys("new", "old").ring("calls")
    there = ClusterKeys("old", "new").ring("calls")
    assert there.accepts(b"data", here.tag(b"data"))
    assert here.accepts(b"data", there.tag(b"data"))
    assert here.tag(b"data") == ClusterKeys("new").ring("calls").tag(b"data")
