"""Pattern matching on streams: `penstock.runtime.patterns` with keyed state, time, and user functions.

An operator keeps a key's memory as one state entry, and its events as entries of a map, each written once and
deleted once. In event time, events wait until the watermark comes; then a key takes its events in order.
Conditions that can begin a match are evaluated for all events of a turn at once, so an event of a key without a
started match costs no more than that. For other keys all simple conditions are evaluated at once, and an event
that satisfies none is skipped if all partial matches would ignore it. A timer of the key fires when its first
partial match takes too long.
"""
