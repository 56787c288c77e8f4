"""Pattern matching on streams: `penstock.runtime.patterns` with keyed state, time, and user functions.

An operator keeps a key's memory as one state entry, and its events as entries of a map, each written once and
deleted once. In event time, events wait until the watermark comes (`waiting`); then a key takes its events in order.
A sieve (`sieve`) in front of the matcher evaluates simple conditions for all events of a turn at once, and leaves out
the events that begin no match and change none. A timer of the key fires when its first partial match takes too long.
"""
