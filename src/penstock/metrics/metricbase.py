"""The metrics of user-defined functions, under PyFlink's module name; see `penstock.base.metrics`."""

from penstock.base.metrics import Counter, Distribution, Gauge, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]
