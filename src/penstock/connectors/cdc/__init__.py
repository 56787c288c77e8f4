"""Change data capture: what the sources of all databases have in common.

`events` has the events that a source of many tables emits, and a pipeline applies to its target.
"""
