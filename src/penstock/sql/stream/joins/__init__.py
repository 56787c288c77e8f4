"""Joins of two streams, and the analysis of their conditions.

A join of append-only inputs keeps both sides as columns (`regular`) and finds rows by hashes of their keys,
which are sorted once enough lookups make that pay (`sides`); a checkpoint adds only the rows that have arrived
since the last one. A window join (`window`) joins all windows that a watermark has passed at once. Rows that
expire carry the time of their last write, and the rows of a key are ordered by it, so the expired ones come
first (`sides`).
"""
