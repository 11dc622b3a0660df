"""Who is let in, and by which kind of token: wired from the configuration."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from parley.accounts.accounts import AccountManager
from parley.accounts.api_tokens import ApiTokenService
from parley.accounts.external_people import ExternalPeople
from parley.accounts.jwks import JWKS_BYTES_MAX, JwksKeys
from parley.accounts.page_sessions import PageSessions
from parley.accounts.sign_in import SignIn, TokenSignIn
from parley.bus.ports import Bus
from parley.clock import Clock
from parley.config import Config, JwtConfig
from parley.core.client_address import parse_networks
from parley.core.jwt_claims import WRONG_KEY_TYPE, JwtRules
from parley.core.retry import DeliveryFailure
from parley.delivery.guarded_http import GuardedHttp
from parley.errors import ConfigError, Refused
from parley.extras import how_to_install
from parley.ids import Ids
from parley.records.kinds import Kinds
from parley.store.ports import Engine

NO_PYJWT = "auth.jwt needs PyJWT and cryptography: {}"

KeyOf = Callable[[str | None, str], Awaitable[Any]]


class Identities:
    """Tokens of programs, people of the operator's own system, and what any token allows."""

    def __init__(
        self,
        *,
        config: Config,
        store: Engine,
        kinds: Kinds,
        manager: AccountManager,
        bus: Bus,
        clock: Clock,
        make_ids: Ids,
    ) -> None:
        self._jwks: JwksKeys | None = None
        self._http = GuardedHttp(parse_networks(tuple(config.webhooks.allowed_networks)))
        self._clock = clock
        self.api_tokens = ApiTokenService(
            kinds.api_tokens, kinds.accounts, store.directory, bus, clock, secrets.token_bytes
        )
        self.external_people = ExternalPeople(
            config.auth_jwt.issuer, kinds.external_ids, kinds.accounts, manager, clock, make_ids
        )
        self.pages = PageSessions(manager, kinds.page_sessions, clock, secrets.token_bytes)
        self.sign_in = SignIn(manager, self.api_tokens, self.pages, self._make_jwt(config.auth_jwt))

    def _make_jwt(self, config: JwtConfig) -> TokenSignIn | None:
        if not config.is_set:
            return None
        try:
            from parley.accounts.jwt_sign_in import JwtSignIn, JwtVerifier
        except ImportError as error:
            raise ConfigError(NO_PYJWT.format(how_to_install("jwt"))) from error
        rules = JwtRules(
            algorithms=frozenset(config.pinned_algorithms),
            issuer=config.issuer,
            audience=config.audience,
            user_claim=config.user_claim,
            leeway_seconds=config.leeway_seconds,
        )
        verifier = JwtVerifier(rules, self._key_of(config), self._clock)
        return JwtSignIn(verifier, self.external_people, self._clock)

    def _key_of(self, config: JwtConfig) -> KeyOf:
        if config.jwks_url:
            self._jwks = JwksKeys(lambda: self._fetch(config.jwks_url), self._clock)
            return published_keys(self._jwks)
        key: Any = config.secret.encode() if config.secret else _public_key(config.public_key)

        async def the_key(kid: str | None, algorithm: str) -> Any:
            return key

        return the_key

    async def _fetch(self, url: str) -> bytes:
        answer = await self._http.get(url, JWKS_BYTES_MAX)
        if isinstance(answer, DeliveryFailure):
            raise OSError(f"{answer.fault.value}: {answer.detail}")
        return answer

    async def close(self) -> None:
        if self._jwks is not None:
            await self._jwks.close()
        await self._http.close()


def published_keys(keys: JwksKeys) -> KeyOf:
    """The keys of a set as PyJWT takes them; one that is none is refused."""
    from jwt import PyJWK, PyJWKError

    async def key_of(kid: str | None, algorithm: str) -> Any:
        try:
            return PyJWK(dict(await keys.key(kid, algorithm)), algorithm)
        except (PyJWKError, ValueError) as error:  # a key that is none
            raise Refused(WRONG_KEY_TYPE) from error

    return key_of


def _public_key(text: str) -> Any:
    """From PEM, or from a file with it."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        pem = text.encode() if text.lstrip().startswith("-----BEGIN") else Path(text).read_bytes()
        return load_pem_public_key(pem)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"auth.jwt.public_key is neither a public key in PEM nor a file with one: {error}"
        ) from error
