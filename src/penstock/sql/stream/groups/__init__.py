"""GROUP BY and DISTINCT of a changelog, and table aggregates."""
