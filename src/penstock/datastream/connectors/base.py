"""The common base of all sources and sinks."""

from __future__ import annotations

from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestError, RequestResult
from penstock.connectors.base import DeliveryGuarantee
from penstock.runtime.connector import Sink, Source

__all__ = [
    "AsyncSinkBase",
    "AsyncSinkSettings",
    "DeliveryGuarantee",
    "RequestClient",
    "RequestError",
    "RequestResult",
    "Sink",
    "Source",
]
