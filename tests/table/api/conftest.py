"""What tests of the Table API have: a planning environment with the tables `orders` and `customers`."""

from __future__ import annotations

import pytest
from tests.table.api.planning import PlanningEnvironment


@pytest.fixture
def environment() -> PlanningEnvironment:
    """An environment that plans and runs nothing."""
    return PlanningEnvironment()
