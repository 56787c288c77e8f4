"""Formats under their PyFlink names."""
