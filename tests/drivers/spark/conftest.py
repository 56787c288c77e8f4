"""One Spark session for all tests of this directory."""

from collections.abc import Iterator

import pytest

from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.session import hand_back, obtain_spark, stop_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkHandle]:
    handle = obtain_spark({}, 4)
    hand_back(handle, 4)
    yield handle
    stop_spark()
