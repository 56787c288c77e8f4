"""A stream that is searched for a pattern."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.base.options import CEP_ALLOW_CHANGED_PATTERN, CEP_PARTIAL_MATCHES_MAX, CEP_PARTIAL_MATCHES_OVERFLOW
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import TypeInformation
from penstock.cep.building import build_search
from penstock.cep.event_comparator import EventComparator
from penstock.cep.functions import (
    FlatSelectAdapter,
    ProcessAdapter,
    SelectAdapter,
    TimeoutFlatSelectAdapter,
    TimeoutSelectAdapter,
)
from penstock.cep.pattern import Pattern
from penstock.core.operators.patterns.pattern_operator import EventTimePatternOperator, ProcessingTimePatternOperator
from penstock.core.operators.patterns.search import PatternSearch, PatternSettings
from penstock.core.operators.returned import refuse_generator_function
from penstock.datastream.all_windowed import the_one_key
from penstock.datastream.data_stream import DataStream, KeyedStream
from penstock.plan.nodes import declared
from penstock.plan.transformation import Transformation, Upstream


class PatternStream:
    """Created by `CEP.pattern`; `process`, `select` and `flat_select` turn matches into records."""

    def __init__(self, stream: DataStream, search: PatternSearch, is_event_time: bool = True) -> None:
        self._stream = stream
        self._search = search
        self._is_event_time = is_event_time

    def in_event_time(self) -> PatternStream:
        """Return the same in event time, the default: the watermark releases events in timestamp order."""
        return PatternStream(self._stream, self._search, True)

    def in_processing_time(self) -> PatternStream:
        """Return the same in processing time: events are processed as they arrive."""
        return PatternStream(self._stream, self._search, False)

    def side_output_late_data(self, output_tag: OutputTag) -> PatternStream:
        """Return the same with late events, which the watermark has reached, sent to a side output, not dropped."""
        if not isinstance(output_tag, OutputTag):
            raise WrongTypeError(f"expected an OutputTag, not {output_tag!r}")
        return PatternStream(self._stream, replace(self._search, late_tag=output_tag.tag_id), self._is_event_time)

    def process(self, pattern_process_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Pass matches to a function.

        Args:
            pattern_process_function: a `PatternProcessFunction`, which may be a `TimedOutPartialMatchHandler`, or a
                callable that takes the match and its context.
            output_type: the type of the emitted records.
        """
        function = pattern_process_function
        if not hasattr(function, "process_match"):
            function = ProcessAdapter(function)
        return self._add(function, output_type)

    def select(
        self,
        pattern_select_function: Any,
        output_type: TypeInformation | None = None,
        *,
        timed_out_partial_matches_tag: OutputTag | None = None,
        pattern_timeout_function: Any = None,
    ) -> DataStream:
        """Emit one record for each match.

        Args:
            pattern_select_function: a `PatternSelectFunction`, or a callable that takes the match.
            output_type: the type of the records.
            timed_out_partial_matches_tag: the side output for timed-out partial matches.
            pattern_timeout_function: a `PatternTimeoutFunction` that creates the side output's records, or a callable
                that takes the partial match and its time.
        """
        refuse_generator_function(pattern_select_function, "select")
        tag = _check_tag(timed_out_partial_matches_tag, pattern_timeout_function)
        if tag is None:
            return self._add(SelectAdapter(pattern_select_function), output_type)
        refuse_generator_function(pattern_timeout_function, "timeout")
        return self._add(TimeoutSelectAdapter(pattern_select_function, pattern_timeout_function, tag), output_type)

    def flat_select(
        self,
        pattern_flat_select_function: Any,
        output_type: TypeInformation | None = None,
        *,
        timed_out_partial_matches_tag: OutputTag | None = None,
        pattern_flat_timeout_function: Any = None,
    ) -> DataStream:
        """Emit any number of records for each match; the arguments are those of `select`."""
        tag = _check_tag(timed_out_partial_matches_tag, pattern_flat_timeout_function)
        if tag is None:
            return self._add(FlatSelectAdapter(pattern_flat_select_function), output_type)
        adapter = TimeoutFlatSelectAdapter(pattern_flat_select_function, pattern_flat_timeout_function, tag)
        return self._add(adapter, output_type)

    def _add(self, function: Any, output_type: TypeInformation | None) -> DataStream:
        stream, is_keyed = self._stream, isinstance(self._stream, KeyedStream)
        keyed = stream if isinstance(stream, KeyedStream) else stream.key_by(the_one_key)
        operator = EventTimePatternOperator if self._is_event_time else ProcessingTimePatternOperator
        factory = partial(operator, self._search, function, keyed.key_selector, self._settings())
        transformation = Transformation(
            "Cep" if is_keyed else "Global Cep",
            declared(factory, output_type),
            keyed.upstreams,
            is_stateful=True,
            output_type=output_type,
        )
        if not is_keyed:
            transformation.parallelism = transformation.parallelism_limit = 1
        environment = stream.get_execution_environment()
        environment.add(transformation)
        return environment.build_stream((Upstream(transformation),))

    def _settings(self) -> PatternSettings:
        read = self._stream.get_execution_environment().get_configuration().read
        return PatternSettings(
            read(CEP_ALLOW_CHANGED_PATTERN),
            read(CEP_PARTIAL_MATCHES_MAX),
            read(CEP_PARTIAL_MATCHES_OVERFLOW) == "drop-oldest",
        )


def pattern_stream(stream: Any, pattern: Any, comparator: Any) -> PatternStream:
    """See `CEP.pattern`."""
    if not isinstance(stream, DataStream):
        raise WrongTypeError(f"CEP.pattern looks for patterns in a DataStream or a KeyedStream, not in {stream!r}")
    if not isinstance(pattern, Pattern):
        raise WrongTypeError(f"expected a Pattern, which begins with Pattern.begin, not {pattern!r}")
    if isinstance(comparator, EventComparator):
        comparator = comparator.compare
    if comparator is not None and not callable(comparator):
        raise WrongTypeError(f"expected an EventComparator, or a callable of two events, not {comparator!r}")
    return PatternStream(stream, build_search(pattern, comparator))


def _check_tag(tag: Any, function: Any) -> OutputTag | None:
    if (tag is None) is not (function is None):
        raise WrongTypeError(
            "partial matches that took too long need both timed_out_partial_matches_tag and the function for them"
        )
    if tag is not None and not isinstance(tag, OutputTag):
        raise WrongTypeError(f"expected an OutputTag, not {tag!r}")
    return tag
