"""Patterns of events in a stream: the engine of `core.patterns` with keyed state, time, and the user's functions."""
