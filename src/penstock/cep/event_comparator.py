"""The order of events with equal timestamps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class EventComparator(ABC):
    """Orders events with equal timestamps."""

    @abstractmethod
    def compare(self, first: Any, second: Any) -> int:
        """Return a negative number if `first` comes first, positive if `second` does, 0 for the order of arrival."""
