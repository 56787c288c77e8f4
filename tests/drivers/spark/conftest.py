"""Penstock's own Spark session for the tests of this directory."""

import pytest

from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.session import hand_back, obtain_spark


@pytest.fixture
def spark() -> SparkHandle:
    """The session of the test before, when it still runs: the tests of other files may have ended it."""
    handle = obtain_spark({}, 4)
    hand_back(handle, 4)
    return handle
