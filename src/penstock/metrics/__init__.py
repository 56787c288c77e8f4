"""What user functions measure: `RuntimeContext.get_metrics_group()` hands out a `MetricGroup`."""

from penstock.metrics.metricbase import Counter, Distribution, Gauge, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]
