"""PostgreSQL, MySQL and MariaDB under PyFlink's names for JDBC, with an additional source and lookup."""

from penstock.connectors.postgres.client import (
    JdbcConnectionOptions,
    JdbcExactlyOnceOptions,
    JdbcExecutionOptions,
)
from penstock.connectors.postgres.scan import JdbcLookup, JdbcSource, JdbcSourceBuilder, LookupCache
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
