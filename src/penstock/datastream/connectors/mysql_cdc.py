"""Changes of MySQL and MariaDB: tables, and then their log, as events."""

from penstock.connectors.mysql.cdc.source import MySqlEventSource, MySqlSourceBuilder

__all__ = ["MySqlEventSource", "MySqlSourceBuilder"]
