"""`iceberg`: tables of Apache Iceberg, with the options of its connector for Flink."""
