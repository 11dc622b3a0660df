"""What the metrics say over virtual time, and that they keep to bounded memory."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from parley.telemetry import (
    HOT_CHATS_MAX,
    HOT_CHATS_TRACKED_MAX,
    LATENCY_AGE_MS_MAX,
    LATENCY_SAMPLES_MAX,
    MINUTE_MS,
    WINDOW_MS,
    WINDOW_SLOT_MS,
    HotChats,
    Latencies,
    Metrics,
    Window,
    escape_controls,
)
from tests.harness.clock import VirtualClock

SOURCE_NAMES = [
    "sequence_allocation_latency_p99",
    "sequence_allocation_errors",
    "counter_missing_errors",
    "idempotency_hit_rate",
    "sequence_gap_rate",
    "transaction_conflict_rate",
    "messages_per_chat_per_minute",
]


def samples(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_a_window_without_events_has_no_rate() -> None:
    """Nothing of nothing is 0, not a division by zero."""
    assert Window(VirtualClock()).rate() == 0.0


def test_a_window_divides_the_sums() -> None:
    """The rate is part by whole over all that happened in the window."""
    clock = VirtualClock()
    window = Window(clock)
    window.add(1, 10)
    clock.advance(WINDOW_MS // 2)
    window.add(2, 20)
    assert window.rate() == 3 / 30


def test_a_window_forgets_what_is_older_than_its_length() -> None:
    """An event counts for a quarter of an hour and not for a slot longer, also when nothing follows it."""
    clock = VirtualClock()
    window = Window(clock)
    window.add(1, 1)
    clock.advance(WINDOW_MS - WINDOW_SLOT_MS)
    assert window.rate() == 1.0
    clock.advance(WINDOW_SLOT_MS)
    assert window.rate() == 0.0


def test_a_window_forgets_by_slots() -> None:
    """What is newer stays when something older expires."""
    clock = VirtualClock()
    window = Window(clock)
    window.add(1, 1)
    clock.advance(WINDOW_SLOT_MS)
    window.add(0, 1)
    clock.advance(WINDOW_MS - WINDOW_SLOT_MS)
    assert window.rate() == 0.0


def test_a_window_stays_small() -> None:
    """A day of steady traffic leaves no more slots than the window is long."""
    clock = VirtualClock()
    window = Window(clock)
    for _ in range(24 * 60 * 12):
        window.add(0, 1)
        clock.advance(5_000)
    assert len(window._slots) <= WINDOW_MS // WINDOW_SLOT_MS


def test_hot_chats_are_the_hottest_few_in_order() -> None:
    """Only the busiest chats are named, the busiest first."""
    hot = HotChats(VirtualClock())
    for number in range(HOT_CHATS_MAX + 5):
        hot.add(f"chat_{number}", number + 1)
    named = hot.hottest()
    assert len(named) == HOT_CHATS_MAX
    assert named[0] == (f"chat_{HOT_CHATS_MAX + 4}", HOT_CHATS_MAX + 5)
    assert named == sorted(named, key=lambda item: -item[1])


def test_hot_chats_remember_the_last_minute_and_no_more() -> None:
    """A full minute is told during the next one, then forgotten."""
    clock = VirtualClock()
    hot = HotChats(clock)
    hot.add("chat_a", 150)
    clock.advance(MINUTE_MS)
    assert hot.hottest() == [("chat_a", 150)]
    clock.advance(MINUTE_MS)
    assert hot.hottest() == []


def test_hot_chats_forget_after_a_silence() -> None:
    """A minute that is long past is not taken for the last one."""
    clock = VirtualClock()
    hot = HotChats(clock)
    hot.add("chat_a", 150)
    clock.advance(10 * MINUTE_MS)
    assert hot.hottest() == []


def test_hot_chats_stay_bounded() -> None:
    """However many chats are active in a minute, only so many are tracked; those go on counting."""
    hot = HotChats(VirtualClock())
    for number in range(HOT_CHATS_TRACKED_MAX + 100):
        hot.add(f"chat_{number}", 1)
    hot.add("chat_0", 7)
    assert len(hot._current) == HOT_CHATS_TRACKED_MAX
    assert hot.hottest()[0] == ("chat_0", 8)


def test_p99_is_the_nearest_rank() -> None:
    """Of a hundred samples the second largest, so that one outlier in a hundred does not count."""
    latencies = Latencies(VirtualClock())
    for _ in range(98):
        latencies.add(0.001)
    latencies.add(0.010)
    latencies.add(9.0)
    assert latencies.p99() == 0.010
    assert latencies.p50() == 0.001


def test_p99_counts_two_outliers_in_a_hundred() -> None:
    """What more than 1% of the samples exceed is exceeded by the p99."""
    latencies = Latencies(VirtualClock())
    for _ in range(98):
        latencies.add(0.001)
    latencies.add(9.0)
    latencies.add(9.0)
    assert latencies.p99() == 9.0


def test_p99_without_samples_is_zero() -> None:
    """A server that has stored nothing is not slow."""
    latencies = Latencies(VirtualClock())
    assert (latencies.p50(), latencies.p99()) == (0.0, 0.0)


def test_p99_forgets_old_samples() -> None:
    """A server that fell silent after a slow minute does not stay alarming."""
    clock = VirtualClock()
    latencies = Latencies(clock)
    latencies.add(9.0)
    clock.advance(LATENCY_AGE_MS_MAX - 1)
    assert latencies.p99() == 9.0
    clock.advance(1)
    assert latencies.p99() == 0.0


def test_p99_keeps_the_last_samples_only() -> None:
    """The oldest samples make room for new ones."""
    latencies = Latencies(VirtualClock())
    latencies.add(9.0)
    for _ in range(LATENCY_SAMPLES_MAX):
        latencies.add(0.001)
    assert latencies.p99() == 0.001


@pytest.mark.parametrize("name", SOURCE_NAMES)
def test_the_seven_names_are_exposed_exactly(name: str) -> None:
    """Each name stands in the text without a suffix."""
    metrics = Metrics(VirtualClock())
    metrics.hot_chats.add("chat_a", 1)
    assert name in samples(metrics)


def test_rates_reach_the_text() -> None:
    """What was counted is what a scrape reads."""
    metrics = Metrics(VirtualClock())
    metrics.retries.add(1, 4)
    metrics.gaps.add(1, 5)
    metrics.conflicts.add(1, 10)
    metrics.allocation.add(0.25)
    metrics.counter_missing_errors.inc(2)
    metrics.sequence_allocation_errors.inc(3)
    found = samples(metrics)
    assert [found[name] for name in SOURCE_NAMES[:6]] == [0.25, 3.0, 2.0, 0.25, 0.2, 0.1]


def test_the_hottest_chats_are_told_apart_by_label() -> None:
    """Each of the hottest chats is a series of its own."""
    metrics = Metrics(VirtualClock())
    metrics.hot_chats.add("chat_a", 3)
    metrics.hot_chats.add("chat_b", 5)
    text = metrics.text().decode()
    assert 'messages_per_chat_per_minute{chat_id="chat_a"} 3.0' in text
    assert 'messages_per_chat_per_minute{chat_id="chat_b"} 5.0' in text


def test_the_store_is_asked_at_each_scrape() -> None:
    """Whether the store can be used is read when somebody asks, not when it was last told."""
    metrics = Metrics(VirtualClock())
    available = [True]
    metrics.store_available.register(lambda: available[0])
    assert samples(metrics)["parley_store_available"] == 1.0
    available[0] = False
    assert samples(metrics)["parley_store_available"] == 0.0


def test_two_servers_in_one_process_count_apart() -> None:
    """Metrics belong to a server, not to the process."""
    one, other = Metrics(VirtualClock()), Metrics(VirtualClock())
    one.messages_stored.inc(5)
    assert samples(other)["parley_messages_stored_total"] == 0.0


def test_a_line_of_text_holds_no_control_character() -> None:
    """What a client said is escaped, in the event as in every field; what is printable stays as it is."""
    line = escape_controls(
        None, "info", {"event": "a\x1b[2J", "path": "/x\r\nfake", "name": "Zoë", "count": 3}
    )
    assert line == {"event": "a\\x1b[2J", "path": "/x\\r\\nfake", "name": "Zoë", "count": 3}
