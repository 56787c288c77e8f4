"""Turns views of jobs into Flink's metrics: names, scopes, types and values.

All metrics derive from two values: a view, and an earlier view for rates. Nothing here asks a job for anything except
views, and the dispatcher hands these out at most twice a second.
"""
