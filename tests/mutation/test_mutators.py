"""Bugs that are planted are programs, and each differs from the module in one place."""

from __future__ import annotations

import ast
import random

import pytest
from tests.mutation.mutators import mutations_of
from tests.mutation.selection import ROOT, modules, select_tests

TEXT = '''
def chosen(values, limit):
    """The values up to a limit."""
    if not values and limit > 1:
        raise ValueError(f"{limit} < 1")
    total = 0
    for value in values:
        if value in (0, limit):
            break
        total += min(value, limit)
    values.clear()
    return total - 1
'''


def test_bugs_are_slips_in_one_place() -> None:
    after = {mutation.applied(TEXT).strip() for mutation in mutations_of(TEXT)}
    assert TEXT.strip() not in after
    for slip in (
        "not values or limit > 1",
        "values and limit > 1",
        "limit >= 1",
        "value not in (0, limit)",
        "max)(value, limit)",
        "total -= min(value, limit)",
        "total + 1",
    ):
        assert any(slip in text for text in after), slip
    assert all('raise ValueError(f"{limit} < 1")' in text for text in after)
    assert any("values.clear()" not in text for text in after)
    assert any("break" not in text for text in after)


@pytest.mark.parametrize("seed", range(5))
def test_bugs_in_modules_are_programs(seed: int) -> None:
    every = modules()
    for path in random.Random(seed).sample(sorted(every), 8):
        for mutation in mutations_of(every[path]):
            ast.parse(mutation.applied(every[path]))


@pytest.mark.slow
def test_tests_of_a_module_import_it_or_are_beside_it() -> None:
    assert select_tests("src/penstock/sql/stream/joins/temporal.py")[0] == "tests/table/streaming/test_versions.py"
    for path in modules():
        assert all((ROOT / test).exists() for test in select_tests(path)), path
