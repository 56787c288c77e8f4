"""`jdbc`: PostgreSQL tables, with the options of Flink's connector of this name."""
