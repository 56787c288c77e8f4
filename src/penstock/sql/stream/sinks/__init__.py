"""Prepares rows for tables: enforces constraints, and handles rows that share a primary key."""
