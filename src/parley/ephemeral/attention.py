"""Whether somebody looks at a device that is connected: one that nobody looks at keeps no notification back.

A device that nobody looks at has a second lease in the registry, under a name that no person has. So every
node knows it, and it ends with the connection, or with the node, like the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.ephemeral.ports import Registry

PREFIX = "unattended:"


def unattended(user_id: str) -> str:
    """Under what the devices of this person are registered at which nobody looks."""
    return f"{PREFIX}{user_id}"


def is_person(user_id: str) -> bool:
    return not user_id.startswith(PREFIX)


async def people_there(registry: Registry, user_ids: Sequence[str]) -> set[str]:
    """Those of these people who have a device that is connected, and that somebody looks at."""
    if not user_ids:
        return set()
    presences = await registry.presences([*user_ids, *map(unattended, user_ids)])
    online = {presence.user_id for presence in presences if presence.is_online}
    found = {user_id for user_id in user_ids if user_id in online}
    if doubtful := [user_id for user_id in found if unattended(user_id) in online]:
        where = await registry.whereabouts([*doubtful, *map(unattended, doubtful)])
        for user_id in doubtful:
            left_alone = where.get(unattended(user_id), {})
            if all(left_alone.get(device) == node for device, node in where.get(user_id, {}).items()):
                found.discard(user_id)
    return found
