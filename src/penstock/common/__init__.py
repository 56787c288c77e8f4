"""The names of `pyflink.common`: time, rows, types, configuration, jobs, errors. Penstock itself does not import it."""

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.configuration import Configuration, ExecutionConfig
from penstock.base.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.base.output_tag import OutputTag
from penstock.base.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.base.time import Duration, Instant, Time
from penstock.base.typeinfo import TypeInformation, Types, TypeSerializer
from penstock.base.types import Row, RowKind
from penstock.base.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.codecs.avro_row import AvroRowDeserializationSchema, AvroRowSerializationSchema
from penstock.codecs.csv_row import CsvRowDeserializationSchema, CsvRowSerializationSchema
from penstock.codecs.json_row import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.codecs.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from penstock.drivers.running_job import JobClient

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "OutputTag",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]
