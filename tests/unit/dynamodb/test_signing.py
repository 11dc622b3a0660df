"""Signatures: the same as botocore makes, for every request that the client sends."""

from datetime import UTC, datetime
from unittest.mock import patch

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.store.dynamodb.driver import Credentials
from parley.store.dynamodb.driver.auth import CONTENT_TYPE, TARGET_PREFIX, Signer

NOON_MS = 1_795_003_200_000
PLAIN = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
ROLE = Credentials("ASIAEXAMPLE", "secret", "a/very+long=token")


def botocore_headers(
    url: str, region: str, credentials: Credentials, operation: str, body: bytes, now_ms: int
) -> dict[str, str]:
    """The headers that botocore sends for the same request at the same moment."""
    headers = {"Content-Type": CONTENT_TYPE, "X-Amz-Target": TARGET_PREFIX + operation}
    request = AWSRequest(method="POST", url=url, data=body, headers=headers)
    theirs = BotoCredentials(credentials.access_key, credentials.secret_key, credentials.token)
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    with patch("botocore.auth.get_current_datetime", return_value=now):
        SigV4Auth(theirs, "dynamodb", region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def our_headers(
    host: str, region: str, credentials: Credentials, operation: str, body: bytes, now_ms: int
) -> dict[str, str]:
    made = Signer(host, region).headers(credentials, operation, body, now_ms)
    return {name.lower(): value for name, value in made.items() if name != "Host"}


@pytest.mark.parametrize("credentials", [PLAIN, ROLE])
@pytest.mark.parametrize(
    ("scheme", "host"),
    [("http", "127.0.0.1:18000"), ("https", "dynamodb.eu-central-1.amazonaws.com"), ("http", "[::1]:8000")],
)
def test_the_signature_is_botocores(scheme: str, host: str, credentials: Credentials) -> None:
    """Every header is the same as botocore's, with and without a session's token."""
    request = ("eu-central-1", credentials, "GetItem", b'{"TableName":"chats"}', NOON_MS)
    assert our_headers(host, *request) == botocore_headers(f"{scheme}://{host}/", *request)


@settings(deadline=None)
@given(
    body=st.binary(max_size=200),
    operation=st.sampled_from(["PutItem", "TransactWriteItems", "Query"]),
    now_ms=st.integers(NOON_MS, NOON_MS + 10**11),
    secret=st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1),
)
def test_any_signature_is_botocores(body: bytes, operation: str, now_ms: int, secret: str) -> None:
    """Whatever the body, the operation, the secret and the moment, the signature is botocore's."""
    request = ("us-east-1", Credentials("AKID", secret), operation, body, now_ms)
    theirs = botocore_headers("http://localhost:8000/", *request)
    assert our_headers("localhost:8000", *request)["authorization"] == theirs["authorization"]


def test_a_signer_goes_with_the_day_and_the_credentials() -> None:
    """A signer that has cached a key makes a new one at midnight and for other credentials."""
    signer = Signer("localhost", "us-east-1")
    for credentials in (PLAIN, ROLE):
        for now_ms in (NOON_MS, NOON_MS + 500, NOON_MS + 86_400_000):
            fresh = Signer("localhost", "us-east-1").headers(credentials, "PutItem", b"{}", now_ms)
            assert signer.headers(credentials, "PutItem", b"{}", now_ms) == fresh
