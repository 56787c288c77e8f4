"""From a program to a job graph: ids, chaining, parallelism."""
