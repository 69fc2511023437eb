"""The registry's figures, for loggers and for Prometheus.

For a logger, and for prometheus_client (extra ``metrics``)::

    wandb.log(stats_dict(), step=step)
    ScalarInternCollector().register()
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from scalarintern import is_installed, stats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["ScalarInternCollector", "resident_bytes", "stats_dict"]

#: What only grows; everything else in `stats()` goes up and down.
_COUNTERS = frozenset({"misses", "hits", "bypassed", "evicted"})
_MEANINGS = {
    "installed": "Whether the adapter is applied.",
    "misses": "Calls that made a new scalar or launch pointer.",
    "hits": "Calls that found one; only with configure(count_hits=True).",
    "bypassed": "Calls that had nothing to intern.",
    "evicted": "Keys that left the retained tier for age.",
    "live": "Canonical scalars alive now.",
    "pointers": "Launch pointers alive now.",
    "retained": "Scalars held in the retained tier.",
    "retained_pointers": "Launch pointers held in the retained tier.",
    "retain": "Bound of the retained tier, in keys.",
    "bytes": "Estimated memory of scalars, pointers, buffers and tables, in bytes.",
}


def stats_dict(*, prefix: str = "scalarintern/") -> dict[str, float]:
    """Return `stats()` as a flat mapping of numbers, such as W&B and TensorBoard loggers take.

    Hits are left out unless they are counted. ``installed`` is 1 where the adapter is applied.

    Args:
        prefix: put before each name.
    """
    record = stats()
    figures = {f"{prefix}installed": float(is_installed())}
    for field in attrs.fields(type(record)):
        value = getattr(record, field.name)
        if isinstance(value, (int, float)):
            figures[f"{prefix}{field.name}"] = float(value)
    return figures


def resident_bytes() -> int:
    """Return this process's resident memory in bytes, or 0 where /proc does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


class ScalarInternCollector:
    """Gives the figures to ``prometheus_client`` each time it is scraped.

    Names begin with ``scalarintern_``; what only grows ends in ``_total``. It reads the figures of
    the process that it lives in.
    """

    def register(self, registry: CollectorRegistry | None = None) -> ScalarInternCollector:
        """Add this to a registry, by default to the one that ``prometheus_client`` serves.

        Raises:
            ModuleNotFoundError: ``prometheus_client`` is not installed; names the extra.
        """
        _client()
        from prometheus_client import REGISTRY

        (REGISTRY if registry is None else registry).register(self)
        return self

    def describe(self) -> Iterable[Metric]:
        """Name the figures without reading them; called once, on registering."""
        return [self._metric(name, None) for name in _MEANINGS]

    def collect(self) -> Iterable[Metric]:
        """Read the figures; called on each scrape."""
        return [self._metric(name, value) for name, value in stats_dict(prefix="").items()]

    @staticmethod
    def _metric(name: str, value: float | None) -> Metric:
        core = _client()
        counts = name in _COUNTERS
        family = core.CounterMetricFamily if counts else core.GaugeMetricFamily
        metric: Metric = family(f"scalarintern_{name}", _MEANINGS.get(name, name))
        if value is not None:
            metric.add_metric([], value)  # type: ignore[attr-defined]
        return metric


def _client() -> Any:
    try:
        from prometheus_client import core
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the collector needs prometheus_client: pip install 'scalarintern[metrics]'",
            name="prometheus_client",
        ) from error
    return core
