"""Whether on each socket the ack of a message comes before the message's own entry."""

from tests.harness.clients import Frame, Person
from tests.harness.history import History
from tests.harness.recording import Recording


class AckOrder:
    """What all connections share: which messages were ever sent, and who saw his own one too early."""

    def __init__(self) -> None:
        self.ever_sent: set[str] = set()
        self.overtaken: list[str] = []


class AckFirst(Recording):
    """A recording that also notices who saw his own message before it was acknowledged.

    Only messages that were sent on this connection first: the original of a retry may be told of at any time.
    """

    def __init__(self, history: History, person: Person, connection: str, order: AckOrder) -> None:
        super().__init__(history, person, connection)
        self._name = connection
        self._order = order
        self._unanswered: dict[int, str] = {}

    def sent(self, frame: Frame) -> None:
        super().sent(frame)
        if frame["type"] == "send_message" and frame["client_message_id"] not in self._order.ever_sent:
            self._order.ever_sent.add(frame["client_message_id"])
            self._unanswered[frame["id"]] = frame["client_message_id"]

    def received(self, frame: Frame) -> None:
        super().received(frame)
        self._unanswered.pop(frame.get("re") or 0, None)
        if frame["type"] == "messages":
            waiting = set(self._unanswered.values())
            early = [entry["sequence"] for entry in frame["entries"] if entry["client_message_id"] in waiting]
            self._order.overtaken += [f"{self._name} saw {sequence} before its ack" for sequence in early]
