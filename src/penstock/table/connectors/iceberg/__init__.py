"""`iceberg`: Apache Iceberg tables, with the options of Iceberg's connector for Flink."""
