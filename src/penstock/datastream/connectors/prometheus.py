"""Prometheus: a sink of samples by Remote Write."""

from penstock.connectors.prometheus import (
    OnErrorBehavior,
    PrometheusSink,
    PrometheusSinkBuilder,
    PrometheusTimeSeries,
    PrometheusTimeSeriesLabelsAndMetricNameKeySelector,
    RetryConfiguration,
    Sample,
    SinkWriterErrorHandlingBehaviorConfiguration,
)

__all__ = [
    "OnErrorBehavior",
    "PrometheusSink",
    "PrometheusSinkBuilder",
    "PrometheusTimeSeries",
    "PrometheusTimeSeriesLabelsAndMetricNameKeySelector",
    "RetryConfiguration",
    "Sample",
    "SinkWriterErrorHandlingBehaviorConfiguration",
]
