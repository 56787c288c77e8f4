"""Where patterns meet streams."""

from __future__ import annotations

from typing import Any

from penstock.cep.pattern import Pattern
from penstock.cep.pattern_stream import PatternStream, pattern_stream
from penstock.datastream.data_stream import DataStream


class CEP:
    """Looks for patterns in streams."""

    @staticmethod
    def pattern(input: DataStream, pattern: Pattern, comparator: Any = None) -> PatternStream:
        """Look for a pattern in a stream.

        Args:
            input: a keyed stream, where the pattern is looked for in the events of each key; or a stream without keys,
                where it is looked for in all events, by one subtask.
            pattern: what is looked for.
            comparator: an `EventComparator`, or a callable of two events, for the order of events of equal time; by
                default they keep the order in which they came.

        Raises:
            MalformedPatternException: if the parts of the pattern do not fit together.
        """
        return pattern_stream(input, pattern, comparator)
