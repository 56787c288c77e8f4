"""The same answer from plain Spark SQL, in the Spark session of the job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.demo.answers import Answer

if TYPE_CHECKING:
    from penstock.drivers.spark.handle import SparkHandle

HOURLY = """
    SELECT origin, time_hour, COUNT(*) AS departures, SUM(CAST(dep_delay AS BIGINT)) AS delay_minutes
    FROM flights
    WHERE dep_delay IS NOT NULL
    GROUP BY origin, time_hour
"""

WORST = """
    SELECT carrier, day, MAX(worst) OVER (PARTITION BY carrier ORDER BY day) AS worst_so_far
    FROM (
        SELECT carrier, SUBSTRING(time_hour, 1, 10) AS day, MAX(CAST(dep_delay AS BIGINT)) AS worst
        FROM flights
        WHERE dep_delay IS NOT NULL
        GROUP BY carrier, SUBSTRING(time_hour, 1, 10)
    ) AS of_days
"""


def answer(spark: SparkHandle, flights: Path) -> Answer:
    """Compute the answer from the package's file with Spark."""
    session = spark.session
    session.read.csv(flights.as_uri(), header=True, nullValue="NA").createOrReplaceTempView("flights")
    hourly = {(origin, hour): (count, delay) for origin, hour, count, delay in session.sql(HOURLY).collect()}
    worst = {(carrier, day): delay for carrier, day, delay in session.sql(WORST).collect()}
    session.catalog.dropTempView("flights")
    return Answer(hourly, worst)
