"""How often records come out at a sink."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(Enum):
    """How often a record comes out at a sink when something fails."""

    EXACTLY_ONCE = 0
    """Once."""

    AT_LEAST_ONCE = 1
    """Once or more often."""

    NONE = 2
    """Perhaps not at all, perhaps more often."""
