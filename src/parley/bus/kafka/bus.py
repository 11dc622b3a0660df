"""The `Bus` port on Kafka: this process's own listeners hear at once, those of other nodes through a topic.

What is in no log (a new chat, ended sessions) stays here: a listener that reaches other nodes passes it on.
"""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.errors import KafkaError

from parley.bus.kafka.live import LiveReader
from parley.bus.kafka.producer import KafkaSink
from parley.bus.listeners import Listeners
from parley.bus.ports import Listener
from parley.bus.publisher import NotPublished, Publisher
from parley.errors import ConfigError
from parley.model import Head, Persisted


class KafkaBus:
    """`own`: the listeners of this process, for what other nodes say directly.

    `live`: None on a node that nobody connects to.
    """

    def __init__(
        self, sink: KafkaSink, publisher: Publisher, own: Listeners, live: LiveReader | None
    ) -> None:
        self.own = own
        self._sink = sink
        self._publisher = publisher
        self._live = live

    async def start(self) -> None:
        """Whatever any node publishes from now on is heard here; ConfigError when no broker can be used."""
        try:
            await self._sink.start()
            if self._live is not None:
                await self._live.start()
        except (KafkaError, NotPublished) as error:
            await self.stop()
            raise ConfigError(f"Kafka cannot be used: {error}") from error

    async def stop(self) -> None:
        """Publish what can be published soon, and let go."""
        await self._publisher.stop()
        if self._live is not None:
            await self._live.stop()
        await self._sink.stop()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self.own.add(listener)

    def publish(self, news: list[Persisted]) -> None:
        self._publisher.publish(news)
        self.own.persisted(news)

    def publish_joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self.own.joined(chat_id, head, user_ids)

    def publish_sessions_ended(self, session_ids: list[str]) -> None:
        self.own.sessions_ended(session_ids)
