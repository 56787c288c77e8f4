"""Changelogs: kinds of rows, upserts as changes, and tables that read and write them."""
