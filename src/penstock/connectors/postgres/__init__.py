"""PostgreSQL by psycopg 3: sinks, sources and look-ups under the names of Flink's JDBC connector, and its changes."""
