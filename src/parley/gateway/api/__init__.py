"""The HTTP API, `/v1`: every route with its handler. See docs/PROTOCOL.md."""

from parley.gateway.api import (
    accounts,
    admin,
    chats,
    deliveries,
    invitations,
    messages,
    people,
    push,
    servers,
    timeline,
)

ROUTES = [
    *accounts.routes.declared,
    *people.routes.declared,
    *chats.routes.declared,
    *invitations.routes.declared,
    *messages.routes.declared,
    *admin.routes.declared,
    *servers.routes.declared,
    *deliveries.routes.declared,
    *push.routes.declared,
    *push.operator_routes.declared,
    *timeline.routes.declared,
]
