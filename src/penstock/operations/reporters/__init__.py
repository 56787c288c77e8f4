"""Metrics and traces sent to others: Prometheus, StatsD, OpenTelemetry, files.

`start_reporters` is all that the layers above call. Everything here runs in threads of its own. What fails is said once
in the log and tried again; no job hears of it.
"""
