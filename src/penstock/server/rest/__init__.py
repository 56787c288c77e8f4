"""Flink's REST API over the jobs of this process, off unless the configuration enables it.

`server` listens in its own thread, `application` holds the access checks and calls handlers in thread pools,
`handlers` has a module for each area of the API, each with its part of the table of routes, which `openapi`
joins and describes. `messages` has the typed answers, built from job views, and `calls` the inputs and outputs
of handlers.
"""
