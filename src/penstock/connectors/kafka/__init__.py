"""Sources and sinks of Apache Kafka."""
