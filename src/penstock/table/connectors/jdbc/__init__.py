"""`jdbc`: tables of PostgreSQL, with the options of Flink's connector of this name."""
