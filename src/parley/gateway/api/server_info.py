"""What a server tells anybody about itself, before they log in."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET

from parley import __version__
from parley.config import Config
from parley.gateway.calls import Call, is_local
from parley.gateway.routes import Answer, Routes
from parley.wire import limits
from parley.wire.page_bodies import ServerFeatures, ServerInfo

routes = Routes("Server")


@routes.route("GET", "/v1/server", "What this server is", {200: ServerInfo}, needs="nothing")
async def show_server(call: Call) -> Answer:
    """Its name, whether you may register here, what it can do, and its limits: what a page or an app needs to
    know before somebody logs in. `features.console`: whether the console is served at this address.
    """
    services, config = call.services, call.services.config
    web_push = services.push.has_web_push
    features = ServerFeatures(
        search=config.search.enabled,
        push=services.push.has_providers,
        web_push=web_push,
        attachments=services.files is not None,
        previews=services.files is not None,
        jwt=config.auth_jwt.is_set,
        console=call.has_console,
    )
    info = ServerInfo(
        name=config.server.name,
        version=__version__,
        registration=_registration(config, call),
        password_length_min=config.password_chars_min,
        features=features,
        limits=limits.WELCOME_LIMITS,
        vapid_key=await services.push.public_key() if web_push else UNSET,
    )
    return 200, info


def _registration(config: Config, call: Call) -> Literal["open", "invite", "closed"]:
    """Whether who asks may create an account; links of operators work wherever it is not closed."""
    setting = config.accounts.registration
    if setting == "loopback":
        return "open" if is_local(call.request, call.services) else "invite"
    return setting
