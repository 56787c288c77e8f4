"""A stream as a Spark data frame: the program so far, in batch execution, as a query that runs when Spark reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.job_id import JobID
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.arrow_types import arrow_type
from penstock.core.batch.task import batch_vertices
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.spark.batch_frames import build_frames
from penstock.drivers.spark.frame_records import field_types
from penstock.drivers.spark.frame_source import DataFrameSource
from penstock.drivers.spark.session import hand_back, obtain_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def frame_of_job(
    job_graph: JobGraph, configuration: Configuration, schema: str | StructType | None, known: Any, owner: str
) -> DataFrame:
    """Return the records that the job's last vertex hands over as a data frame, without running anything yet.

    Args:
        job_graph: a job for batch execution.
        configuration: its settings.
        schema: the frame's schema, as DDL or a `StructType`; None to derive it.
        known: the known type of the records: a `TypeInformation`, the source that they come from, or None.
        owner: the operator that the records come from, for errors.

    Raises:
        ConfigurationError: if the columns cannot be derived.
        PenstockError: if Spark cannot be started.
    """
    spark = obtain_spark(configuration.to_dict(), 1)
    hand_back(spark, 1)  # a query takes a slot only while it runs
    spark.ship_package()
    spark.ship_dependencies(configuration)
    vertices = [replace(vertex, has_client=False) for vertex in batch_vertices(job_graph, str(JobID.generate()))]
    frame_schema = _schema(schema, known, spark.session, owner)
    frames = build_frames(job_graph, vertices, spark.session, spark.is_local, lambda vertex: False, frame_schema)
    return frames[job_graph.vertices[-1].index]


def _schema(schema: Any, known: Any, session: SparkSession, owner: str) -> StructType:
    if schema is not None:
        frame_schema: StructType = session.createDataFrame([], schema).schema
        return frame_schema
    if isinstance(known, DataFrameSource):
        return known.frame.schema
    fields = field_types(known) if isinstance(known, TypeInformation) else None
    if fields is None:
        raise ConfigurationError(
            f"the columns of the records of {owner!r} are unknown: give to_dataframe() a schema, such as 'name STRING, "
            "count BIGINT', or the operator before it an output_type, such as Types.ROW_NAMED(['name', 'count'], "
            "[Types.STRING(), Types.LONG()])"
        )
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([(name, arrow_type(field)) for name, field in fields]))
