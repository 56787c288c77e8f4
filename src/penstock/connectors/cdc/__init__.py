"""Change data capture: the parts that the sources of all databases share.

`events` has the events that a source of many tables emits, and a pipeline applies to its target.
"""
