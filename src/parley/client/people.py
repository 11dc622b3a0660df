"""People, and oneself among them, as an application asks for them: profiles, settings, contacts, devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from urllib.parse import quote

from parley.client.api import Api
from parley.client.bodies import Device, Devices, Me, Profile, Related, RelatedPage
from parley.client.errors import RequestRefused
from parley.model import Privacy
from parley.wire.limits import PAGE_ENTRIES_MAX


class Relations:
    """Contacts, or those whom one has blocked: a list of one's own, of which the others are not told."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name

    async def all(self) -> list[Related]:
        """Everybody on it."""
        people: list[Related] = []
        params = {"limit": str(PAGE_ENTRIES_MAX)}
        while True:
            page = await self._api.call("GET", self._name, RelatedPage, params=params)
            people += page.contacts or page.blocks
            if page.next_after is None:
                return people
            params["after"] = page.next_after

    async def add(self, user_id: str) -> Related:
        """Twice is as good as once."""
        return await self._api.call("PUT", self._path(user_id), Related)

    async def remove(self, user_id: str) -> None:
        await self._api.call("DELETE", self._path(user_id), object)

    def _path(self, user_id: str) -> str:
        return f"{self._name}/{quote(user_id, safe='')}"


class People(ABC):
    """What needs no connection but an answer: RequestRefused or CannotConnect if there is none."""

    api: Api

    @property
    def contacts(self) -> Relations:
        return Relations(self.api, "contacts")

    @property
    def blocks(self) -> Relations:
        """Those who cannot write to one directly, nor see one's presence, typing and receipts."""
        return Relations(self.api, "blocks")

    async def me(self) -> Me:
        """One's own profile and settings."""
        return await self.api.call("GET", "me", Me)

    async def update(
        self,
        *,
        display_name: str | None = None,
        about: str | None = None,
        last_seen_privacy: Privacy | None = None,
        send_read_receipts: bool | None = None,
    ) -> Me:
        """Change what is named of one's own profile and settings."""
        wanted: dict[str, object] = {
            "display_name": display_name,
            "about": about,
            "last_seen_privacy": last_seen_privacy,
            "send_read_receipts": send_read_receipts,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        me = await self.api.call("PATCH", "me", Me, body)
        if send_read_receipts is not None:
            self.look_again()
        return me

    @abstractmethod
    def look_again(self) -> None:
        """What may be seen of others is another: what is shown of them is asked for."""

    async def person(self, user_id: str) -> Profile:
        return await self.api.call("GET", f"users/{quote(user_id, safe='')}", Profile)

    async def find(self, username: str) -> Profile | None:
        """The person with exactly this username."""
        try:
            return await self.api.call("GET", "users", Profile, params={"username": username})
        except RequestRefused as error:
            if error.code == "not_found":
                return None
            raise

    async def devices(self) -> list[Device]:
        """Every device that may speak for the person, and when it last did."""
        return (await self.api.call("GET", "devices", Devices)).devices

    async def remove_device(self, device_id: str) -> None:
        """Log a device out everywhere; its connections end and its cursors are forgotten."""
        await self.api.call("DELETE", f"devices/{quote(device_id, safe='')}", object)
