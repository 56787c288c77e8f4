"""Pattern matching on streams."""

from __future__ import annotations

from typing import Any

from penstock.cep.pattern import Pattern
from penstock.cep.pattern_stream import PatternStream, pattern_stream
from penstock.datastream.data_stream import DataStream


class CEP:
    """Searches streams for patterns."""

    @staticmethod
    def pattern(input: DataStream, pattern: Pattern, comparator: Any = None) -> PatternStream:
        """Search a stream for a pattern.

        Args:
            input: a keyed stream, where the pattern is matched against the events of each key; or a stream without
                keys, where one subtask matches it against all events.
            pattern: the pattern to search for.
            comparator: an `EventComparator`, or a callable of two events, that orders events with equal timestamps; by
                default they stay in order of arrival.

        Raises:
            MalformedPatternException: if the parts of the pattern do not fit together.
        """
        return pattern_stream(input, pattern, comparator)
