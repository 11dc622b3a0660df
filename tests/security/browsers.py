"""A browser, as far as sessions of pages go."""

from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any

from aiohttp import ClientSession
from msgspec import Struct, field

from tests.harness.clients import PASSWORD, Answer
from tests.integration.gateway.serving import Served

SESSION = "/v1/web/session"


class Browser(Struct):
    """As much of one as matters here: cookies, and headers that a page cannot change."""

    served: Served
    host: str = ""
    scheme: str = "http"
    port: int = 0
    cookies: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    """The attributes of the last cookie."""
    key: str = ""

    @property
    def address(self) -> str:
        return self.host or f"127.0.0.1:{self.port or self.served.port}"

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "",
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """As a page of this server would; a header that is None is left out."""
        wanted: dict[str, str | None] = {
            "Host": self.address,
            "Origin": f"{self.scheme}://{self.address}",
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/json",
            "Parley-Page": "1",
            "Authorization": f"Bearer {token}" if token else None,
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()) or None,
            **{name.replace("_", "-"): value for name, value in (headers or {}).items()},
        }
        async with ClientSession() as session:
            url = f"http://127.0.0.1:{self.port or self.served.port}{path}"
            sent = {name: value for name, value in wanted.items() if value is not None}
            async with session.request(
                method, url, json=body, headers=sent, skip_auto_headers=["Content-Type"]
            ) as answer:
                text = await answer.read()
                self._keep(answer.headers.getall("Set-Cookie", []))
                said = await answer.json() if text else ""
                return Answer(answer.status, said, dict(answer.headers))

    def _keep(self, cookies: list[str]) -> None:
        for line in cookies:
            for name, morsel in SimpleCookie(line).items():
                self.told = {key: str(value) for key, value in morsel.items() if value}
                if morsel.value:
                    self.cookies[name] = morsel.value
                else:
                    self.cookies.pop(name, None)

    async def sign_in(self, username: str = "ann", query: str = "", **fields: Any) -> Answer:
        body = {
            "username": username,
            "password": PASSWORD,
            "device_id": "web",
            "device_name": "Chrome on Linux",
        }
        answer = await self.ask("POST", f"{SESSION}{query}", body | fields)
        self.key = answer.body.get("key", "")
        return answer

    async def refresh(self, query: str = "", **fields: Any) -> Answer:
        return await self.ask("POST", f"{SESSION}/refresh{query}", fields)

    async def get(self, path: str, answer: Answer) -> Answer:
        return await self.ask("GET", path, token=answer.body["access_token"])
