"""Streaming jobs on Spark: workers are long-running Spark tasks."""
