"""HTTP services: a sink of requests, and a webhook as a source."""

from penstock.connectors.http import HttpSink, HttpSinkBuilder, HttpSinkRequestEntry
from penstock.connectors.webhook import WebhookSettings, WebhookSource

__all__ = ["HttpSink", "HttpSinkBuilder", "HttpSinkRequestEntry", "WebhookSettings", "WebhookSource"]
