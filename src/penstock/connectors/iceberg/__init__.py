"""Sources and sinks for Apache Iceberg tables, based on pyiceberg."""
