"""Flink's REST API over the jobs of this process, off unless the configuration enables it.

`server` listens in its own thread, `application` holds the guards and the table of routes, `handlers` has one module
per area of the API, and `shapes` has the typed answers, built from job views.
"""
