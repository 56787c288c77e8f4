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


def test_bugs_in_modules_are_programs() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    every = modules()
    for path in chance.sample(sorted(every), 20):
        mutations = list(mutations_of(every[path]))
        for mutation in chance.sample(mutations, min(len(mutations), 10)):
            text = mutation.applied(every[path])
            try:
                ast.parse(text)
            except SyntaxError as error:
                pytest.fail(f"seed {seed}: {path} is no program after {mutation}: {error}")


@pytest.mark.slow
def test_tests_of_a_module_import_it_or_are_beside_it() -> None:
    assert select_tests("src/penstock/sql/stream/joins/temporal.py")[0] == "tests/table/streaming/test_versions.py"
    for path in modules():
        assert all((ROOT / test).exists() for test in select_tests(path)), path
