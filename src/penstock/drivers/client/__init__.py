"""The client: submits programs to the drivers, and runs loops, which consist of many jobs."""
