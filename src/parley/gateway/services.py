"""What connections and HTTP handlers work with, and the frames that both answer with."""

from __future__ import annotations

import asyncio

from parley.chats.accounts import People
from parley.chats.membership import Membership
from parley.chats.reading import Reading
from parley.chats.sending import Sender
from parley.clock import Clock
from parley.config import Config
from parley.core.rates import FRAMES_PER_CONNECTION, RateLimiter
from parley.ephemeral.ports import Ephemeral
from parley.errors import UNAUTHENTICATED
from parley.gateway.connection import Connection
from parley.gateway.hub import Hub
from parley.gateway.lobby import Lobby
from parley.gateway.outbox import Flusher
from parley.gateway.shared_rates import SharedRates
from parley.model import Page
from parley.people.social import Social
from parley.telemetry import Metrics
from parley.wire.codec import Codec
from parley.wire.frames import MessageBatch

ALONE = "alone"
"""The name of a node that nobody else needs to know."""


class Services:
    """The rooms behind the gateway, the open connections, and the rates they share."""

    wrong_device = UNAUTHENTICATED.because("this token belongs to another device_id")

    def __init__(
        self,
        *,
        config: Config,
        clock: Clock,
        metrics: Metrics,
        people: People,
        membership: Membership,
        sending: Sender,
        reading: Reading,
        social: Social,
        hub: Hub,
        ephemeral: Ephemeral,
        node_id: str = ALONE,
    ) -> None:
        self.config = config
        self.clock = clock
        self.metrics = metrics
        self.people = people
        self.membership = membership
        self.sending = sending
        self.reading = reading
        self.presences = social.presences
        self.typings = social.typings
        self.receipts = social.receipts
        self.relating = social.relating
        self.listing = social.listing
        self.muting = social.muting
        self.note_arrival = social.note_arrival
        self.hub = hub
        self.connections: set[Connection] = set()
        self.flusher = Flusher()
        self.draining = False
        self._gone: asyncio.Future[None] | None = None
        self.ephemeral = ephemeral
        self.lobby = Lobby(ephemeral.registry, node_id)
        self.lobby.gone = social.note_gone
        self.rates = SharedRates(self.ephemeral, clock)
        self.message_rate = self.rates.messages
        self.frame_rate = RateLimiter(FRAMES_PER_CONNECTION)

    def arrived(self, connection: Connection) -> None:
        self.connections.add(connection)

    def left(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._gone is not None and not self.connections and not self._gone.done():
            self._gone.set_result(None)

    async def everybody_gone(self) -> None:
        """Returns when no connection is left."""
        if self.connections:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone

    @staticmethod
    def batch_frame(page: Page, codec: Codec) -> MessageBatch:
        return MessageBatch(
            chat_id=page.chat_id,
            epoch=page.epoch,
            entries=codec.entries(page.entries),
            voids=page.voids,
            from_sequence=page.from_sequence,
            to_sequence=page.to_sequence,
            head=page.head,
            complete=page.complete,
            reset=page.reset,
        )
