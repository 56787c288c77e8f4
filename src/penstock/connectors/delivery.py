"""The delivery guarantees of sinks."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(Enum):
    """How often a sink delivers each record if a failure occurs."""

    EXACTLY_ONCE = 0
    """Once."""

    AT_LEAST_ONCE = 1
    """Once or more often."""

    NONE = 2
    """Perhaps not at all, perhaps more often."""
