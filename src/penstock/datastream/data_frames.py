"""Conversion between Spark data frames and streams (I2)."""

from __future__ import annotations

from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import CHECKPOINTING_DIR, EXECUTION_TARGET
from penstock.base.typeinfo import TypeInformation, Types
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.connector import Source
from penstock.runtime.operators.record.stateless import HandOverOperator

#: Kinds of transformations whose output type is their input type.
_SAME_TYPE = {"Filter", "Timestamps/Watermarks"}


def source_of_dataframe(configuration: Configuration, df: Any, type_info: TypeInformation | None) -> Source[Any, Any]:
    """Create a source that reads a data frame, or the rows that arrive in a streaming one."""
    if df.isStreaming:
        from penstock.drivers.spark.structured_streaming import StreamingFrameSource

        return StreamingFrameSource(df, type_info)
    from penstock.drivers.spark.frames import DataFrameSource

    return DataFrameSource(df, type_info, configuration.read(CHECKPOINTING_DIR))


def build_data_frame(
    upstreams: tuple[Upstream, ...], above: list[Transformation], configuration: Configuration, schema: Any
) -> Any:
    """Return the records of these streams, computed by `above`, as a data frame; see `DataStream.to_dataframe`."""
    end = Transformation("Data Frame", HandOverOperator, upstreams)
    graph = build_job_graph([*above, end], configuration, "data frame")
    if graph.mode != "BATCH":
        raise ConfigurationError(
            f"to_dataframe() needs batch execution, but this program's mode is {graph.mode}: call "
            "set_runtime_mode(RuntimeExecutionMode.BATCH); in a streaming program, write to a sink that Spark can read"
        )
    if configuration.read(EXECUTION_TARGET) == "local":
        raise ConfigurationError("to_dataframe() needs Spark, but execution.target is local")
    from penstock.drivers.spark.batch_job import frame_of_job

    owner = ", ".join(upstream.transformation.display_name for upstream in end.inputs)
    return frame_of_job(graph, configuration, schema, _known(end), owner)


def build_batch_sink(upstreams: tuple[Upstream, ...], function: Any, schema: Any, configuration: Configuration) -> Any:
    """Return the sink of `DataStream.for_each_batch`."""
    from penstock.drivers.spark.batch_job import derive_schema
    from penstock.drivers.spark.foreach_batch import ForEachBatchSink
    from penstock.drivers.spark.session import hand_back, obtain_spark

    end = Transformation("Data Frame", HandOverOperator, upstreams)
    owner = ", ".join(upstream.transformation.display_name for upstream in end.inputs)
    spark = obtain_spark(configuration.to_dict(), 1)
    hand_back(spark, 1)
    frame_schema = derive_schema(schema, _known(end), spark.session, owner, "for_each_batch()")
    return ForEachBatchSink(function, frame_schema, "for_each_batch()")


def _known(transformation: Transformation) -> Any:
    """Return a transformation's input type, or the source that feeds it unchanged; None if neither is known."""
    if len({id(upstream.transformation) for upstream in transformation.inputs}) != 1:
        return None
    upstream = transformation.inputs[0]
    if upstream.side_tag is not None:
        return None
    above = upstream.transformation
    if above.output_type not in (None, Types.PICKLED_BYTE_ARRAY()):
        return above.output_type
    if above.source is not None:
        return above.source
    return _known(above) if above.kind in _SAME_TYPE else None
