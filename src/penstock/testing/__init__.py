"""Tools for testing a single operator or user-defined function, in virtual time and without a cluster.

>>> from penstock.testing import harness_for
>>> with harness_for(lambda word: word.upper()) as harness:
...     harness.process("a", 10)
...     harness.output
[Record('A', 10)]
"""

from penstock.testing.hostile import run_hostile
from penstock.testing.operator_harness import (
    Element,
    OneInputOperatorHarness,
    ProcessingTime,
    Record,
    TwoInputOperatorHarness,
    VirtualClock,
    harness_for,
    operator_factory_for,
)
from penstock.testing.pattern_trace import PatternTrace, TraceStep, trace_pattern

__all__ = [
    "Element",
    "OneInputOperatorHarness",
    "PatternTrace",
    "ProcessingTime",
    "Record",
    "TraceStep",
    "TwoInputOperatorHarness",
    "VirtualClock",
    "harness_for",
    "operator_factory_for",
    "run_hostile",
    "trace_pattern",
]
