"""Complex event processing: patterns of events in streams, like Flink's FlinkCEP library.

>>> from penstock.cep import Pattern
>>> pattern = Pattern.begin("start").where(lambda event: event < 10).followed_by("end").where(lambda event: event >= 10)
>>> pattern.get_name()
'end'
"""

from penstock.cep.conditions import (
    BooleanConditions,
    IterativeCondition,
    RichAndCondition,
    RichIterativeCondition,
    RichNotCondition,
    RichOrCondition,
    SimpleCondition,
    SubtypeCondition,
)
from penstock.cep.functions import (
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    RichPatternFlatSelectFunction,
    RichPatternSelectFunction,
    TimedOutPartialMatchHandler,
)
from penstock.cep.pattern import (
    AfterMatchSkipStrategy,
    ConsumingStrategy,
    GroupPattern,
    MalformedPatternException,
    Pattern,
    Quantifier,
    QuantifierProperty,
    Times,
    UnsupportedOperationError,
    WithinType,
)
from penstock.cep.pattern_stream import CEP, EventComparator, PatternStream

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "BooleanConditions",
    "ConsumingStrategy",
    "EventComparator",
    "GroupPattern",
    "IterativeCondition",
    "MalformedPatternException",
    "Pattern",
    "PatternFlatSelectFunction",
    "PatternFlatTimeoutFunction",
    "PatternProcessFunction",
    "PatternSelectFunction",
    "PatternStream",
    "PatternTimeoutFunction",
    "Quantifier",
    "QuantifierProperty",
    "RichAndCondition",
    "RichIterativeCondition",
    "RichNotCondition",
    "RichOrCondition",
    "RichPatternFlatSelectFunction",
    "RichPatternSelectFunction",
    "SimpleCondition",
    "SubtypeCondition",
    "TimedOutPartialMatchHandler",
    "Times",
    "UnsupportedOperationError",
    "WithinType",
]
