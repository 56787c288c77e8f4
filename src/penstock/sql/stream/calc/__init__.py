"""Filters, projections, table functions and grouping sets."""
