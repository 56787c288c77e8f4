"""Formats of tables: how rows are bytes, in files and in messages."""
