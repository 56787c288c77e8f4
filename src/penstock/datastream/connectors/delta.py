"""Tables of Delta Lake as a sink and as a source, under the names of Flink's connector."""

from penstock.connectors.delta.sink import DeltaSink, DeltaSinkBuilder

__all__ = ["DeltaSink", "DeltaSinkBuilder"]
