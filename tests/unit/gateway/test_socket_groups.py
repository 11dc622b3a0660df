"""Connections of one user: what they may leave unread together."""

from parley.gateway.socket_groups import SocketGroup, SocketGroups
from parley.gateway.turns import LoopShare
from parley.wire.codes import Close
from parley.wire.limits import OUTBOX_BYTES_MAX, USER_OUTBOX_BYTES_MAX


class UnreadSocket:
    """A connection that has so much unread."""

    def __init__(self, outbox_bytes: int) -> None:
        self.outbox_bytes = outbox_bytes

    def close(self, close: Close) -> None:
        raise AssertionError("a group closes nobody by itself")


def group_of(*unread: int) -> tuple[SocketGroup, list[UnreadSocket]]:
    group, sockets = SocketGroup(LoopShare()), [UnreadSocket(size) for size in unread]
    for socket in sockets:
        group.add(socket)
    return group, sockets


def test_few_sockets_have_a_whole_outbox_each() -> None:
    """As long as all of them fit, none is asked to have less."""
    group, _ = group_of(*[0] * (USER_OUTBOX_BYTES_MAX // OUTBOX_BYTES_MAX))
    assert group.outbox_bytes_max == OUTBOX_BYTES_MAX


def test_many_sockets_have_a_part_each() -> None:
    """What each may have unasked is never more than all may have together."""
    group, sockets = group_of(*[0] * 100)
    assert group.outbox_bytes_max * len(sockets) <= USER_OUTBOX_BYTES_MAX


def test_the_fullest_goes_when_all_have_too_much() -> None:
    """Exactly at the limit nobody has to go; one byte more, and it is the one with most unread."""
    fullest = OUTBOX_BYTES_MAX
    group, sockets = group_of(1, fullest, USER_OUTBOX_BYTES_MAX - fullest - 3)
    assert (group.slowest(2), group.slowest(3)) == (None, sockets[2])


def test_who_has_less_is_asked_while_another_has_more() -> None:
    """What one took of the others' parts counts when they take theirs; once it has read, nobody is asked."""
    group, sockets = group_of(*[0] * (2 * USER_OUTBOX_BYTES_MAX // OUTBOX_BYTES_MAX))
    part = group.outbox_bytes_max
    sockets[0].outbox_bytes = OUTBOX_BYTES_MAX
    assert (group.slowest(1), group.outbox_bytes_max) == (None, 0)
    group.discard(sockets.pop())
    assert group.outbox_bytes_max == 0
    sockets[0].outbox_bytes = 0
    assert group.slowest(1) is None
    assert group.outbox_bytes_max > part


def test_a_group_without_sockets_is_forgotten() -> None:
    """Users who have left leave nothing behind."""
    groups, socket = SocketGroups(), UnreadSocket(0)
    groups.join("ann", socket)
    counted = groups.count("ann")
    groups.leave("ann", socket)
    assert (counted, groups.count("ann"), groups._groups) == (1, 0, {})


def test_requests_and_connections_of_a_user_share_the_loop() -> None:
    """A request under way, a connection that opens meanwhile and a request after it are one client."""
    groups, socket = SocketGroups(), UnreadSocket(0)
    request = groups.share_of("ann")
    group = groups.join("ann", socket)
    assert group.share is request
    assert groups.share_of("ann") is request
    assert groups.share_of("ben") is not request


def test_what_a_user_owes_outlives_their_connection() -> None:
    """Who resets a connection and comes back is still the client that waits in line."""
    groups, socket = SocketGroups(), UnreadSocket(0)
    owed = groups.join("ann", socket).share
    groups.leave("ann", socket)
    assert groups.join("ann", socket).share is owed


def test_a_share_that_nobody_holds_is_forgotten() -> None:
    """Requests that are over leave nothing behind."""
    groups = SocketGroups()
    groups.share_of("ann").spent = 1.0
    assert (len(groups._shares), groups.share_of("ann").spent) == (0, 0.0)
