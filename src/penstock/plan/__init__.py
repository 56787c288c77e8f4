"""Translation of a program to a job graph: ids, chaining, parallelism."""
