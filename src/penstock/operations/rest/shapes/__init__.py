"""The answers of the API: typed values with Flink's names, made from views of jobs by plain functions."""
