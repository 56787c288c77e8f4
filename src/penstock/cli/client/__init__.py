"""The commands' client of Flink's REST API: its address, its requests, and names of jobs."""
