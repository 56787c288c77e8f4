"""MATCH_RECOGNIZE in streams."""
