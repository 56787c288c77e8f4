"""Records, splits, functions and results that are larger than a message may be, between real workers."""

from typing import Any

import pytest
from tests.drivers.spark.programs import CollectingListener, counting_job

from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.job import submit

pytestmark = pytest.mark.spark

LARGE = 3_000_000


def options(**more: str) -> Configuration:
    return Configuration.from_dict({"penstock.network.max-frame-bytes": "65536", "parallelism.default": "2", **more})


@pytest.mark.slow
def test_what_is_larger_than_a_message_gets_there(spark: SparkHandle) -> None:
    """B3: on the way to the source, from worker to worker, and to the client; each among small ones, in order."""
    env = StreamExecutionEnvironment.get_execution_environment(options()).enable_checkpointing(200)
    records = [(i % 2, i, bytes([i]) * (LARGE if i in (3, 4) else 10)) for i in range(10)]
    held = b"h" * LARGE  # travels with the function
    stream = env.from_collection(records).key_by(lambda record: record[0]).map(lambda r: (*r, len(held)))
    results: Any = stream.execute_and_collect()
    with results:
        got = list(results)
    assert sorted(got) == sorted((*record, LARGE) for record in records)
    assert [r[1] for r in got if r[0] == 0] == [0, 2, 4, 6, 8]


def test_what_is_larger_than_a_record_may_be_fails_the_job_at_once(spark: SparkHandle) -> None:
    """G8: with the record and the option, whatever the restart strategy."""
    configuration = options(
        **{
            "penstock.network.record-bytes-max": "100000",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000000",
            "restart-strategy.fixed-delay.delay": "0 ms",
        }
    )
    job = counting_job(10, None, 2, lambda number: (number, "x" * 200_000))
    with pytest.raises(JobExecutionError, match=r"a record needs 2\d+ bytes, but penstock.network.record-bytes-max"):
        submit(job, configuration, CollectingListener()).wait()
