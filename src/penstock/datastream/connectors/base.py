"""The common base of all sources and sinks."""

from __future__ import annotations

from penstock.connectors.base import DeliveryGuarantee
from penstock.runtime.connector import Sink, Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
