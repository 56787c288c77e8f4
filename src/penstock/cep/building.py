"""Conversion of the API's patterns to the engine's, with validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.base.time import Duration
from penstock.cep.conditions import IterativeCondition
from penstock.cep.pattern import GroupPattern, Pattern
from penstock.cep.quantifier import ConsumingStrategy, QuantifierProperty, WithinType, check
from penstock.core.operators.patterns.search import Asked, PatternSearch
from penstock.core.patterns import pattern as engine
from penstock.core.patterns.pattern import Contiguity

_CONTIGUITIES = {
    ConsumingStrategy.STRICT: Contiguity.STRICT,
    ConsumingStrategy.SKIP_TILL_NEXT: Contiguity.RELAXED,
    ConsumingStrategy.SKIP_TILL_ANY: Contiguity.NON_DETERMINISTIC,
    ConsumingStrategy.NOT_NEXT: Contiguity.NOT_NEXT,
    ConsumingStrategy.NOT_FOLLOW: Contiguity.NOT_FOLLOWED,
}
#: Flink's name for the end of a pattern
_END = "$endState$"


def build_search(pattern: Pattern, compare: Callable[[Any, Any], int] | None = None) -> PatternSearch:
    """Build the search that a pattern's operator runs.

    Raises:
        MalformedPatternException: if the parts of the pattern do not fit together.
    """
    building = _Building()
    compiled = engine.Pattern(building.parts(pattern), building.within_ms)
    building.check(pattern, compiled)
    strategy = pattern.get_after_match_skip_strategy().engine_strategy
    return PatternSearch(compiled, strategy, tuple(building.conditions), compare)


def list_stages(pattern: Pattern) -> list[Pattern]:
    """Return the stages and groups of a pattern in order, without the stages inside groups."""
    stages: list[Pattern] = []
    stage: Pattern | None = pattern
    while stage is not None:
        stages.append(stage)
        stage = stage.get_previous()
    return stages[::-1]


class _Building:
    def __init__(self) -> None:
        self.conditions: list[Asked] = []
        self.within_ms: int | None = None
        self._names: list[str] = []

    def parts(self, pattern: Pattern) -> tuple[engine.Part, ...]:
        return tuple(map(self._part, list_stages(pattern)))

    def _part(self, stage: Pattern) -> engine.Part:
        within = _ms(stage.get_window_size(WithinType.FIRST_AND_LAST))
        if within is not None and (self.within_ms is None or within < self.within_ms):
            self.within_ms = within
        contiguity = _CONTIGUITIES[stage.get_quantifier().get_consuming_strategy()]
        since_last = _ms(stage.get_window_size(WithinType.PREVIOUS_AND_CURRENT))
        if isinstance(stage, GroupPattern):
            parts = self.parts(stage.get_raw_pattern())
            times = self._times(stage)
            check(
                times.most is not None or not engine.may_be_empty(parts),
                "a group that loops needs a stage that is not optional, or it would repeat nothing for ever",
            )
            head = parts[0]
            if since_last is not None and isinstance(head, engine.Stage) and head.since_last_ms is None:
                parts = (replace(head, since_last_ms=since_last), *parts[1:])
            return engine.Group(parts, contiguity, times)
        name = stage.get_name()
        check(name not in self._names and name != _END, f"two stages have the name {name!r}")
        self._names.append(name)
        number = self._asked(stage.get_condition(), f"the condition of stage {name!r}")
        return engine.Stage(name, number, contiguity, self._times(stage), since_last)

    def _times(self, stage: Pattern) -> engine.Times:
        quantifier, times, until = stage.get_quantifier(), stage.get_times(), stage.get_until_condition()
        is_looping = quantifier.has_property(QuantifierProperty.LOOPING)
        return engine.Times(
            1 if times is None else times.get_from(),
            None if is_looping else 1 if times is None else times.get_to(),
            quantifier.has_property(QuantifierProperty.OPTIONAL),
            quantifier.has_property(QuantifierProperty.GREEDY),
            _CONTIGUITIES[quantifier.get_inner_consuming_strategy()],
            None if until is None else self._asked(until, f"the until condition of stage {stage.get_name()!r}"),
            None if times is None else _ms(times.get_window_size()),
        )

    def _asked(self, condition: IterativeCondition, description: str) -> int:
        self.conditions.append(Asked(condition, description))
        return len(self.conditions) - 1

    def check(self, pattern: Pattern, compiled: engine.Pattern) -> None:
        """Check the rules that involve the whole pattern."""
        name = pattern.get_after_match_skip_strategy().get_pattern_name()
        check(name is None or name in self._names, f"the skip strategy names the stage {name!r}, which is not there")
        for stage in compiled.stages():
            for window in (stage.since_last_ms, stage.times.window_ms):
                check(
                    window is None or compiled.within_ms is None or window <= compiled.within_ms,
                    f"stage {stage.name!r}: the time between the previous event and the current one ({window} ms) must "
                    f"not be longer than that between the first event and the last one ({compiled.within_ms} ms)",
                )
        last = compiled.parts[-1]
        check(
            not isinstance(last, engine.Stage)
            or last.contiguity is not Contiguity.NOT_FOLLOWED
            or compiled.within_ms is not None
            or last.since_last_ms is not None,
            f"a pattern that ends with not_followed_by({pattern.get_name()!r}) needs a window: call within()",
        )


def _ms(duration: Duration | None) -> int | None:
    """Return a duration in ms; None (no window) for None or 0."""
    return None if duration is None else duration.to_millis() or None
