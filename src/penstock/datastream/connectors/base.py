"""The common base of all sources and sinks."""

from __future__ import annotations

from penstock.connectors.delivery import DeliveryGuarantee
from penstock.core.connector import Sink, Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
