"""Tables of Apache Iceberg, as sources and sinks, by the package pyiceberg."""
