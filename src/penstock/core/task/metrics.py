"""What the operators of a task have measured, taken together, and the names of what the chain counts."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.operators.context import OperatorContext

Summary = tuple[int, float, float, float]


def side_output_counter(tag_id: str) -> str:
    """The name of the counter of records that went to a side output."""
    return f"side_output.{tag_id}.records"


def metrics_of(contexts: Iterable[OperatorContext]) -> tuple[dict[str, int], dict[str, float], dict[str, Summary]]:
    """Counters, added up by name, gauges and distributions, of the operators and of the user's functions."""
    counters: dict[str, int] = {}
    gauges: dict[str, float] = {}
    distributions: dict[str, Summary] = {}
    for context in contexts:
        for name, value in (*context.counters.items(), *context.metrics.counters().items()):
            counters[name] = counters.get(name, 0) + value
        gauges.update(context.metrics.gauges())
        distributions.update(context.metrics.distributions())
    return counters, gauges, distributions
