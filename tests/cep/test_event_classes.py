"""Events in state whose class gains a field between a savepoint and the restart."""

from __future__ import annotations

import sys
from contextlib import closing
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from tests.cep.searching import opened

from penstock.cep import Pattern
from penstock.cep.functions import SelectAdapter
from penstock.cep.pattern_stream import build_search
from penstock.runtime.operators.patterns.pattern_operator import EventTimePatternOperator

BEFORE = "from dataclasses import dataclass\n\n@dataclass\nclass Event:\n    kind: str\n    number: int\n"
AFTER = BEFORE + "    place: str = 'nowhere'\n"


def operator() -> EventTimePatternOperator:
    first = Pattern.begin("a").where(lambda event: event.kind == "a")
    pattern = first.followed_by("b").where(lambda event: event.kind == "b")
    return EventTimePatternOperator(build_search(pattern), SelectAdapter(dict), lambda event: "k")


def test_events_of_partial_matches_and_events_that_wait_gain_the_field(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType("evolving_events")
    monkeypatch.setitem(sys.modules, "evolving_events", module)
    exec(BEFORE, vars(module))
    with closing(opened(partial(operator))) as harness:
        harness.process(module.Event("a", 1), 1)
        harness.watermark(1)
        harness.process(module.Event("b", 2), 2)
        snapshot = harness.snapshot(1)
    exec(AFTER, vars(module))
    with closing(opened(partial(operator), snapshot)) as harness:
        harness.watermark(9)
        assert harness.values == [{"a": [module.Event("a", 1, "nowhere")], "b": [module.Event("b", 2, "nowhere")]}]
