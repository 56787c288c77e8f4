"""What the commands know of Flink's REST API: where it is, how to ask, and how jobs are named."""
