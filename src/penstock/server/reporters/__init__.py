"""Reporters of metrics and traces: Prometheus, StatsD, OpenTelemetry, files.

The layers above call only `start_reporters` and `keep_looking`. Everything here runs in its own threads. A failure is
logged once and retried; it never affects a job.
"""
