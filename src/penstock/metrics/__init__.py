"""Metrics of user-defined functions: `RuntimeContext.get_metrics_group()` returns a `MetricGroup`."""

from penstock.base.metrics import Counter, Distribution, Gauge, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]
