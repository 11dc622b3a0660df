"""The rows that scenarios report."""

from __future__ import annotations

from msgspec import Struct, field

from bench.measuring import OTHERS_CORES_MAX, Stretch


class Row(Struct, kw_only=True):
    """One line of the table. `value` is the figure of the target; None where nothing is known."""

    name: str
    label: str
    unit: str
    value: float
    cpu_us: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    batch: float | None = None
    generator_share: float | None = None
    others_cores: float | None = None
    notes: list[str] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)

    @property
    def was_disturbed(self) -> bool:
        return self.others_cores is not None and self.others_cores > OTHERS_CORES_MAX


def acks_row(name: str, label: str, stretch: Stretch) -> Row:
    return _row(name, label, "acks/s", stretch.acks, stretch.ack_ms, stretch)


def deliveries_row(name: str, label: str, stretch: Stretch, unit: str = "delivered/s") -> Row:
    return _row(name, label, unit, stretch.delivered, stretch.delivery_ms, stretch)


def pages_row(name: str, label: str, stretch: Stretch) -> Row:
    return _row(name, label, "entries/s", stretch.delivered, stretch.ack_ms, stretch)


def ratio_row(name: str, label: str, ratio: float, notes: list[str]) -> Row:
    """The ratio of two figures of the same run."""
    return Row(name=name, label=label, unit="×", value=ratio, notes=notes)


def _row(name: str, label: str, unit: str, rate: float, ms: tuple[float, float], stretch: Stretch) -> Row:
    return Row(
        name=name,
        label=label,
        unit=unit,
        value=rate,
        cpu_us=stretch.cpu_us_per(rate),
        p50_ms=ms[0],
        p99_ms=ms[1],
        batch=stretch.batch,
        generator_share=stretch.generator_share,
        others_cores=stretch.others_cores,
        notes=stretch.notes,
    )
