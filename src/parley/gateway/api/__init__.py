"""The HTTP API, `/v1`: every route with its handler. See docs/PROTOCOL.md."""

from parley.gateway.api import accounts, admin, chats, deliveries, invitations, messages, people, servers

ROUTES = [
    *accounts.routes.declared,
    *people.routes.declared,
    *chats.routes.declared,
    *invitations.routes.declared,
    *messages.routes.declared,
    *admin.routes.declared,
    *servers.routes.declared,
    *deliveries.routes.declared,
]
