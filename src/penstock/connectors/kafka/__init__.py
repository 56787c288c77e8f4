"""Sources and sinks for Apache Kafka."""
