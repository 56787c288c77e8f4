"""Conversions between a program's tables and its streams, data frames and Arrow tables."""
