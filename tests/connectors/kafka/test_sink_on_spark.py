"""Kafka → keyed state → Kafka on Spark, exactly once through the death of a worker and of the broker.

`python -m tests.connectors.kafka.kills --kills 50` does so for long, and kills drivers too.
"""

import pytest
from tests.connectors.kafka.kills import run

pytestmark = pytest.mark.spark


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_each_record_comes_out_once_though_workers_and_the_broker_are_killed() -> None:
    report = run(7, 3, 500, "local[2]", (0.5, 1.5), {"worker": 2, "broker": 1})
    assert report.startswith("3 kills ("), report
