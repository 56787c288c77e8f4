"""`kafka`: tables stored in Kafka topics."""
