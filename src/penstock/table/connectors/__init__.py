"""Connectors of tables: what a table's options say, as sources and sinks."""
