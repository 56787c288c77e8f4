"""PostgreSQL under PyFlink's names for JDBC, with an additional source and lookup."""

from penstock.connectors.postgres.client import (
    JdbcConnectionOptions,
    JdbcExactlyOnceOptions,
    JdbcExecutionOptions,
)
from penstock.connectors.postgres.lookup import JdbcLookup, LookupCache
from penstock.connectors.postgres.scan import JdbcSource, JdbcSourceBuilder
from penstock.connectors.postgres.sink import JdbcSink

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExactlyOnceOptions",
    "JdbcExecutionOptions",
    "JdbcLookup",
    "JdbcSink",
    "JdbcSource",
    "JdbcSourceBuilder",
    "LookupCache",
]
