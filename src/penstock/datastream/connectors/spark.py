"""Sinks of Spark that write each epoch once."""

from penstock.drivers.spark.delta_epochs import DeltaEpochWriter
from penstock.drivers.spark.jdbc_epochs import JdbcEpochWriter

__all__ = ["DeltaEpochWriter", "JdbcEpochWriter"]
