"""The order of events of equal time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class EventComparator(ABC):
    """Says which of two events of one time comes first."""

    @abstractmethod
    def compare(self, first: Any, second: Any) -> int:
        """Negative if the first one comes first, positive if the second one does, 0 for the order of arrival."""
