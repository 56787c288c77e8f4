"""Formats under PyFlink's names."""
