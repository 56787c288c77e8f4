"""Translates logical plans to transformations."""
