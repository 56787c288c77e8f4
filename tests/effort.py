"""How much chance a run of the tests gets: `PENSTOCK_TEST_EFFORT=5 make test` tries five times as much of it."""

import os
from typing import Final

EFFORT: Final = int(os.environ.get("PENSTOCK_TEST_EFFORT", "1"))


def tries(count: int) -> int:
    """How many random histories, pairs or pipelines to try where a usual run tries `count`."""
    return count * EFFORT
