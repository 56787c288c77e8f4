"""Pattern matching on streams: the engine of `core.patterns` with keyed state, time, and the user's functions."""
