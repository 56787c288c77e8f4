"""Sinks that send batches of requests to a service, several at a time: `AsyncSinkBase` and its parts."""
