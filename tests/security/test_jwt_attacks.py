"""Tokens that somebody makes up, bends or keeps too long: each is refused, for its own reason."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from parley.accounts.jwks import JwksKeys
from parley.accounts.jwt_sign_in import JwtVerifier
from parley.clock import wall_clock
from parley.core import jwt_claims as reasons
from parley.errors import Refusal, Refused
from tests.harness.clients import HttpClient, Person
from tests.harness.clock import VirtualClock
from tests.harness.jwts import AUDIENCE, ISSUER, SECRET, SETTINGS, claims, ec_key, rsa_jwk, rsa_key, signed
from tests.integration.gateway.serving import Place, assert_refused

CLOCK = VirtualClock()
NOW = CLOCK() // 1000
HMAC_RULES = reasons.JwtRules(algorithms=frozenset({"HS256"}), issuer=ISSUER, audience=AUDIENCE)
KEY_RULES = reasons.JwtRules(algorithms=frozenset({"RS256", "ES256"}), issuer=ISSUER, audience=AUDIENCE)


async def secret_key(kid: str | None, algorithm: str) -> Any:
    return SECRET.encode()


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def body(**changed: Any) -> dict[str, Any]:
    return claims(CLOCK(), **changed)


def unsigned(algorithm: Any) -> str:
    return f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(body())}."


def with_public_key_as_secret() -> str:
    """What a naive server takes: the public key, known to everybody, as the secret of an HMAC."""
    pem = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    said = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(body())}"
    mac = base64.urlsafe_b64encode(hmac.digest(pem, said.encode(), hashlib.sha256)).decode().rstrip("=")
    return f"{said}.{mac}"


def changed_body() -> str:
    header, _, signature = signed(body()).split(".")
    return f"{header}.{part(body(sub='root'))}.{signature}"


HMAC_ATTACKS: dict[str, tuple[Callable[[], str], Refusal]] = {
    "no algorithm": (lambda: unsigned("none"), reasons.WRONG_ALGORITHM),
    "no algorithm in other letters": (lambda: unsigned("nOnE"), reasons.WRONG_ALGORITHM),
    "an algorithm that is no text": (lambda: unsigned(["HS256"]), reasons.WRONG_ALGORITHM),
    "an algorithm that is not pinned": (
        lambda: signed(body(), SECRET * 2, "HS512"),
        reasons.WRONG_ALGORITHM,
    ),
    "a public key's algorithm": (lambda: signed(body(), rsa_key(), "RS256"), reasons.WRONG_ALGORITHM),
    "another secret": (lambda: signed(body(), SECRET + "!"), reasons.WRONG_SIGNATURE),
    "another body": (changed_body, reasons.WRONG_SIGNATURE),
    "no signature": (lambda: signed(body()).rpartition(".")[0] + ".", reasons.WRONG_SIGNATURE),
    "something critical": (lambda: signed(body(), crit=["b64"], b64=True), reasons.CRITICAL),
    "a foreign issuer": (lambda: signed(body(iss="https://evil.example")), reasons.WRONG_ISSUER),
    "no issuer": (lambda: signed(body(iss=None)), reasons.WRONG_ISSUER),
    "an issuer that begins alike": (lambda: signed(body(iss=f"{ISSUER}.evil")), reasons.WRONG_ISSUER),
    "a foreign audience": (lambda: signed(body(aud="shop")), reasons.WRONG_AUDIENCE),
    "foreign audiences": (lambda: signed(body(aud=["shop", "parley2"])), reasons.WRONG_AUDIENCE),
    "no audience": (lambda: signed(body(aud=None)), reasons.WRONG_AUDIENCE),
    "no expiry": (lambda: signed(body(exp=None)), reasons.NO_EXPIRY),
    "an endless expiry": (lambda: signed(body(exp=2**60)), reasons.NO_EXPIRY),
    "an expiry that is no number": (lambda: signed(body(exp=True)), reasons.NO_EXPIRY),
    "too late": (lambda: signed(body(exp=NOW - reasons.LEEWAY_SECONDS)), reasons.EXPIRED),
    "too early": (lambda: signed(body(nbf=NOW + reasons.LEEWAY_SECONDS + 1)), reasons.NOT_YET),
    "from the future": (
        lambda: signed(body(iat=NOW + reasons.LEEWAY_SECONDS + 1)),
        reasons.FROM_THE_FUTURE,
    ),
    "nobody": (lambda: signed(body(sub=None)), reasons.NO_PERSON),
    "an empty name": (lambda: signed(body(sub="")), reasons.NO_PERSON),
    "a name of blanks": (lambda: signed(body(sub=" ")), reasons.NO_PERSON),
    "a name with a line break": (lambda: signed(body(sub="a\nb")), reasons.NO_PERSON),
    "a name that is a number": (lambda: signed(body(sub=7)), reasons.NO_PERSON),
    "a name that is true": (lambda: signed(body(sub=True)), reasons.NO_PERSON),
    "a name that is a list": (lambda: signed(body(sub=["4711"])), reasons.NO_PERSON),
    "a name that is too long": (lambda: signed(body(sub="x" * 256)), reasons.NO_PERSON),
    "too much": (lambda: signed(body(more="x" * reasons.JWT_CHARS_MAX)), reasons.TOO_LONG),
    "no token at all": (lambda: "a.b.c", reasons.NOT_A_JWT),
    "a body that is no object": (
        lambda: f"{part({'alg': 'HS256'})}.{part([1])}.{part(1)}",
        reasons.WRONG_SIGNATURE,
    ),
}
KEY_ATTACKS: dict[str, tuple[Callable[[], str], Refusal]] = {
    "a public key as a secret": (with_public_key_as_secret, reasons.WRONG_ALGORITHM),
    "another private key": (
        lambda: signed(body(), rsa_key(1), "RS256", kid="one"),
        reasons.WRONG_SIGNATURE,
    ),
    "an unknown key": (lambda: signed(body(), rsa_key(), "RS256", kid="other"), reasons.UNKNOWN_KEY),
    "a key id that is no text": (
        lambda: f"{part({'alg': 'RS256', 'kid': ['one']})}.{part(body())}.{part(1)}",
        reasons.UNKNOWN_KEY,
    ),
    "a key of another type": (
        lambda: signed(body(), ec_key(), "ES256", kid="one"),
        reasons.WRONG_KEY_TYPE,
    ),
    "a key for encryption": (
        lambda: signed(body(), rsa_key(), "RS256", kid="enc"),
        reasons.WRONG_KEY_TYPE,
    ),
    "a secret in the set": (lambda: signed(body(), rsa_key(), "RS256", kid="oct"), reasons.UNKNOWN_KEY),
    "a key that it brings": (
        lambda: signed(body(), rsa_key(1), "RS256", kid="mine", jwk=rsa_jwk("mine", 1)),
        reasons.UNKNOWN_KEY,
    ),
    "an address that it brings": (
        lambda: signed(body(), rsa_key(1), "RS256", kid="mine", jku="https://evil.example/keys"),
        reasons.UNKNOWN_KEY,
    ),
}


async def verified(verifier: JwtVerifier, token: str) -> Any:
    try:
        return await verifier.verify(token)
    except Refused as error:
        return error.refusal


@pytest.mark.parametrize("attack", HMAC_ATTACKS)
async def test_a_token_with_a_secret_is_refused_for_its_reason(attack: str) -> None:
    """Every attack on a server with a secret meets a reason of its own, beside a good token that does not."""
    make, reason = HMAC_ATTACKS[attack]
    verifier = JwtVerifier(HMAC_RULES, secret_key, CLOCK)
    assert (await verified(verifier, signed(body()))).claim == "4711"
    assert await verified(verifier, make()) == reason


@pytest.mark.parametrize("attack", KEY_ATTACKS)
async def test_a_token_with_a_public_key_is_refused_for_its_reason(attack: str) -> None:
    """The same with published keys, and nothing that a token names is ever fetched."""
    from parley.app.identities import published_keys

    fetched = 0
    published = [
        rsa_jwk("one"),
        rsa_jwk("enc", use="enc"),
        {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA", "kid": "broken"},
        "no key",
    ]

    async def fetch() -> bytes:
        nonlocal fetched
        fetched += 1
        return json.dumps({"keys": published}).encode()

    make, reason = KEY_ATTACKS[attack]
    verifier = JwtVerifier(KEY_RULES, published_keys(JwksKeys(fetch, CLOCK)), CLOCK)
    good = signed(body(), rsa_key(), "RS256", kid="one")
    found = await verified(verifier, good)
    assert isinstance(found, reasons.JwtIdentity), found
    assert await verified(verifier, make()) == reason
    assert fetched == 1


@pytest.mark.parametrize("seconds", [0, reasons.LEEWAY_SECONDS - 1])
async def test_clocks_may_differ_a_little(seconds: int) -> None:
    """A token that has just expired, or is just not valid yet, is believed; it ends when the leeway does."""
    verifier = JwtVerifier(HMAC_RULES, secret_key, CLOCK)
    found = await verified(verifier, signed(body(exp=NOW - seconds, nbf=NOW + seconds, iat=NOW + seconds)))
    assert found.ends_at_ms == (NOW - seconds + reasons.LEEWAY_SECONDS) * 1000


async def test_a_jwt_is_never_an_operator(place: Place) -> None:
    """Whatever it claims, and even if the account is one by other means."""
    async with place.serving(SETTINGS) as served:
        said = claims(wall_clock(), is_operator=True, admin=True, scope="admin", roles=["operator"])
        client = HttpClient(served.session, served.url, signed(said))
        me = (await client.get("/v1/me")).body
        assert_refused(await client.get("/v1/admin/users"), 403, "forbidden")
        user = await served.app.accounts.user(me["user_id"])
        assert not user.is_operator
        await served.app.accounts.update(me["user_id"], is_operator=True)
        assert_refused(await client.get("/v1/admin/users"), 403, "forbidden")


async def test_a_refused_token_opens_neither_door(place: Place) -> None:
    """Over HTTP 401, over a socket a close that asks for another token; no account is made."""
    async with place.serving(SETTINGS) as served:
        bad = signed(claims(wall_clock()), "another secret that has bytes enough, too")
        assert_refused(
            await HttpClient(served.session, served.url, bad).get("/v1/me"), 401, "unauthenticated"
        )
        client = served.client(Person("", "", "phone", "", bad))
        await client.open()
        await client.tell("hello", id=1, token=bad, device_id="phone")
        assert (await client.until_ended()).code == 4101
        assert (await served.app.kinds.account_admin.counts()).people == 0


async def test_without_configuration_no_jwt_is_believed(place: Place) -> None:
    """A server that trusts no issuer takes none of its tokens."""
    async with place.serving() as served:
        client = HttpClient(served.session, served.url, signed(claims(wall_clock())))
        assert_refused(await client.get("/v1/me"), 401, "unauthenticated")


async def test_a_disabled_person_is_not_let_in_by_a_jwt(place: Place) -> None:
    """Their token is still good, their account is not, and their sockets close at once."""
    async with place.serving(SETTINGS) as served:
        root = await served.operator()
        token = signed(claims(wall_clock()))
        client = HttpClient(served.session, served.url, token)
        user_id = (await client.get("/v1/me")).body["user_id"]
        async with served.client(Person("", user_id, "phone", "", token)) as socket:
            await served.as_(root).post(f"/v1/admin/users/{user_id}/disable", None)
            assert (await socket.until_ended()).code == 4102
        assert_refused(await client.get("/v1/me"), 403, "account_disabled")
        await served.as_(root).delete(f"/v1/admin/users/{user_id}")
        assert_refused(await client.get("/v1/me"), 403, "account_disabled")
