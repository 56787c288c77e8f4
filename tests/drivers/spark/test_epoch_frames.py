"""What a job in micro-batch execution does with Spark's session beside its epochs."""

from __future__ import annotations

import pytest

from penstock.drivers.spark.epoch_job import _warm, warm_executors
from penstock.drivers.spark.handle import SparkHandle

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_query_on_numbers_is_planned_once_without_code_and_other_queries_as_ever(spark: SparkHandle) -> None:
    """I1: an epoch is a short query, of one Spark job."""
    settings = dict.fromkeys(("spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage"), "true")
    conf = spark.session.conf
    before = {key: str(conf.get(key)) for key in settings}
    # Other tests of this process may have begun the session without.
    try:
        for key, value in settings.items():
            conf.set(key, value)
        short, usual = (
            frame.where("id > 0").repartition(2, "id")._jdf.queryExecution().executedPlan().toString()
            for frame in (spark.numbers(3), spark.session.range(0, 3, 1, 3))
        )
        assert "Adaptive" in usual
        assert "Adaptive" not in short
        assert "*(" not in short  # the mark of a stage for which code is generated
        assert "*(" in spark.session.range(0, 3).where("id > 0")._jdf.queryExecution().executedPlan().toString()
    finally:
        for key, value in before.items():
            conf.set(key, value)


def test_readers_of_one_shuffle_share_it(spark: SparkHandle) -> None:
    """I1: so the vertex before it runs once. Where Spark does otherwise, the job keeps the vertex's output instead."""
    assert spark.shares_shuffles


@pytest.mark.slow
def test_numbers_are_those_below_a_count_a_partition_each(spark: SparkHandle) -> None:
    frame = spark.numbers(3)
    assert [[row.id for row in rows] for rows in frame.rdd.glom().collect()] == [[0], [1], [2]]
    assert frame.union(spark.numbers(2)).count() == 5


def test_executors_are_warmed_by_a_short_job(spark: SparkHandle) -> None:
    """Its tasks make no rows; the tag lets the job's own interrupt end it."""
    status = spark.session.sparkContext.statusTracker()
    _warm(spark, "warm-tag", 3)
    (job,) = status.getJobIdsForGroup("warm-tag")
    info = status.getJobInfo(job)
    assert info is not None
    assert info.status == "SUCCEEDED"


def test_where_all_of_spark_is_one_process_nothing_is_warmed(spark: SparkHandle) -> None:
    warm_executors(spark, "no-tag")
    assert not spark.session.sparkContext.statusTracker().getJobIdsForGroup("no-tag")
