"""Delta Lake tables as a sink and as a source, under the names of Flink's connector."""

from penstock.connectors.delta.sink import DeltaSink, DeltaSinkBuilder
from penstock.connectors.delta.source import BoundedDeltaSourceBuilder, ContinuousDeltaSourceBuilder, DeltaSource

__all__ = [
    "BoundedDeltaSourceBuilder",
    "ContinuousDeltaSourceBuilder",
    "DeltaSink",
    "DeltaSinkBuilder",
    "DeltaSource",
]
