"""The answers of the API: typed values with Flink's names, built from job views by plain functions."""
