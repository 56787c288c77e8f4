"""The combined metrics of a task's operators, and the names of the chain's counters."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.operators.context import OperatorContext
from penstock.core.protocol import OperatorFigures

Summary = tuple[int, float, float, float]
#: Counters, gauges and distributions, by name.
Metrics = tuple[dict[str, int], dict[str, float], dict[str, Summary]]


def side_output_counter(tag_id: str) -> str:
    """Return the name of the counter for records sent to a side output."""
    return f"side_output.{tag_id}.records"


def metrics_of_operator(context: OperatorContext) -> Metrics:
    """Return the metrics of an operator and its user function; reads each of the user's gauges."""
    counters = dict(context.counters)
    for name, value in context.metrics.counters().items():
        counters[name] = counters.get(name, 0) + value
    return counters, context.metrics.gauges(), context.metrics.distributions()


def metrics_of_task(operators: Iterable[OperatorFigures]) -> Metrics:
    """Combine the metrics of a task's operators: sum counters by name; if gauges share a name, the last one wins."""
    counters: dict[str, int] = {}
    gauges: dict[str, float] = {}
    distributions: dict[str, Summary] = {}
    for operator in operators:
        for name, value in operator.counters.items():
            counters[name] = counters.get(name, 0) + value
        gauges.update(operator.gauges)
        distributions.update(operator.distributions)
    return counters, gauges, distributions
