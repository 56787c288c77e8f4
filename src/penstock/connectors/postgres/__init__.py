"""PostgreSQL through psycopg 3: sinks, sources and lookups named as in Flink's JDBC connector, and CDC."""
