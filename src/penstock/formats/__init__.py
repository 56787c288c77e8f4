"""File formats: CSV, JSON lines, Parquet."""
