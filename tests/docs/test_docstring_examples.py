"""Every public class, and the methods that users call most, show an example, and each example runs.

The example of a class is complete: it runs as it stands in a fresh interpreter. The example of a method goes on from
the example of its class. An environment takes its settings from the reader's `config.yaml`, and by default it runs on
Spark; here each runs in this process.
"""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from penstock.drivers.global_configuration import OPTIONS_VARIABLE, handed_over

#: Packages whose every public class and function has an example.
PACKAGES = [
    "penstock.cep",
    "penstock.common",
    "penstock.common.accumulators",
    "penstock.common.aggregators",
    "penstock.common.watermark_strategy",
    "penstock.datastream",
    "penstock.datastream.async_retry_strategies",
    "penstock.datastream.connectors",
    "penstock.datastream.connectors.datagen",
    "penstock.datastream.state",
    "penstock.datastream.window",
    "penstock.gelly",
    "penstock.gelly.asm",
    "penstock.gelly.bipartite",
    "penstock.gelly.columnar",
    "penstock.gelly.generator",
    "penstock.gelly.gsa",
    "penstock.gelly.library",
    "penstock.gelly.pregel",
    "penstock.gelly.spargel",
    "penstock.state_processor",
    "penstock.table",
    "penstock.testing",
]
#: The methods that users call most, by class; functions, and classes of other modules, by module.
CALLED_MOST = {
    "penstock.cep.CEP": "pattern",
    "penstock.cep.Pattern": "begin followed_by next not_followed_by one_or_more times where within",
    "penstock.cep.PatternStream": "process select",
    "penstock.common.Configuration": "from_dict set_string",
    "penstock.common.Row": "as_dict",
    "penstock.common.WatermarkStrategy": "for_bounded_out_of_orderness with_idleness with_timestamp_assigner",
    "penstock.datastream.AsyncDataStream": "ordered_wait unordered_wait",
    "penstock.datastream.ConnectedStreams": "process",
    "penstock.datastream.DataStream": (
        "assign_timestamps_and_watermarks collect execute_and_collect explain filter flat_map key_by map name "
        "print rebalance set_parallelism sink_to uid"
    ),
    "penstock.datastream.KeyedStream": "max max_by min reduce sum window",
    "penstock.datastream.RuntimeContext": "add_accumulator get_list_state get_map_state get_state",
    "penstock.datastream.StreamExecutionEnvironment": (
        "enable_checkpointing execute execute_async explain from_collection from_elements from_source "
        "get_configuration set_parallelism set_runtime_mode"
    ),
    "penstock.datastream.TimerService": (
        "current_watermark delete_event_time_timer register_event_time_timer register_processing_time_timer"
    ),
    "penstock.datastream.WindowedStream": (
        "aggregate allowed_lateness apply process reduce side_output_late_data sum trigger"
    ),
    "penstock.datastream.connectors.delta": "DeltaSink DeltaSource",
    "penstock.datastream.connectors.file_system": "BulkFormat DefaultRollingPolicy OnCheckpointRollingPolicy",
    "penstock.datastream.connectors.hybrid_source": "HybridSource HybridSourceBuilder",
    "penstock.datastream.connectors.jdbc": "JdbcExactlyOnceOptions",
    "penstock.datastream.connectors.kafka": (
        "FixedPartitioner KafkaOffsetResetStrategy KafkaOffsetsInitializer KafkaPartitioner KafkaRecord "
        "KafkaRecordDeserializationSchema KafkaRecordSerializationSchema "
        "KafkaRecordSerializationSchemaBuilder KafkaSink KafkaSinkBuilder KafkaSourceBuilder "
        "KafkaTopicPartition KafkaTopicSelector"
    ),
    "penstock.datastream.formats.avro": "AvroBulkWriters AvroSchema AvroWriterFactory",
    "penstock.datastream.formats.csv": (
        "CsvBulkWriters CsvFormat CsvReaderFormat CsvSchema CsvSchemaBuilder CsvWriterFactory"
    ),
    "penstock.datastream.formats.json": "JsonLinesEncoder JsonLinesFormat",
    "penstock.datastream.formats.orc": "OrcBulkWriters OrcFormat OrcWriterFactory",
    "penstock.datastream.formats.parquet": (
        "AvroParquetReaders AvroParquetWriters ParquetBulkWriters ParquetColumnarRowInputFormat ParquetFormat "
        "ParquetWriterFactory"
    ),
    "penstock.datastream.state.ListState": "get update",
    "penstock.datastream.state.MapState": "get items",
    "penstock.datastream.state.ValueState": "update value",
    "penstock.gelly.Graph": "from_collection run",
    "penstock.metrics": "Counter Distribution Gauge Meter MetricGroup",
    "penstock.state_processor.SavepointReader": "read read_value_state",
    "penstock.state_processor.SavepointWriter": "from_existing_savepoint",
    "penstock.table.Expression": (
        "alias asc between cast concat desc if_null in_ like replace round substring then trim try_cast"
    ),
    "penstock.table.StatementSet": "add_insert add_insert_sql execute",
    "penstock.table.StreamTableEnvironment": "from_data_stream to_changelog_stream to_data_stream",
    "penstock.table.Table": (
        "add_columns distinct drop_columns execute execute_insert explain filter group_by join "
        "left_outer_join limit order_by print_schema select to_pandas union_all where"
    ),
    "penstock.table.TableEnvironment": (
        "create create_statement_set create_table create_temporary_system_function create_temporary_view "
        "execute_sql explain_sql from_elements from_path get_config sql_query"
    ),
    "penstock.table.TableResult": "collect get_job_client print wait",
    "penstock.table.catalog": (
        "Catalog CatalogBaseTable CatalogDatabase CatalogFunction Column ObjectPath ResolvedSchema UniqueConstraint"
    ),
    "penstock.table.expressions": "and_ call coalesce col if_then_else lit",
    "penstock.table.udf": "udaf udf udtaf udtf",
    "penstock.table.window": "Over Session Slide Tumble",
    "penstock.testing.OneInputOperatorHarness": "process snapshot",
}
SECTION = re.compile(r"^Examples?:$", re.MULTILINE)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public_names() -> list[str]:
    """The classes and functions that public packages offer, each under one name."""
    offered = [(f"{package}.{name}", getattr(import_module(package), name)) for package, name in _all()]
    names = {id(obj): name for name, obj in reversed(offered) if inspect.isclass(obj) or inspect.isfunction(obj)}
    return sorted(names.values())


def _all() -> list[tuple[str, str]]:
    return [(package, name) for package in PACKAGES for name in import_module(package).__all__]


def named(name: str) -> Any:
    """What has this dotted name: a module, a class or a function."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        owner, _, last = name.rpartition(".")
        return inspect.getattr_static(named(owner), last)


def described(obj: Any) -> Any:
    """What carries the docstring: the function of a static method, a class method or a property."""
    function: Any = obj.fget if isinstance(obj, property) else getattr(obj, "__func__", obj)
    return inspect.unwrap(function)


def examples_of(obj: Any) -> list[doctest.Example]:
    """The examples of a docstring; none without a section for them."""
    text = inspect.cleandoc(described(obj).__doc__ or "")
    section = SECTION.search(text)
    return doctest.DocTestParser().get_examples(text) if section and ">>> " in text[section.end() :] else []


def run(examples: list[doctest.Example], name: str) -> str:
    """What is wrong with the examples, run one after the other as in a fresh interpreter."""
    said: list[str] = []
    test = doctest.DocTest(examples, {"__name__": "__main__"}, name, None, None, None)
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
    return "".join(said)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, handed_over({"execution.target": "local"}))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", public_names())
def test_a_public_class_has_an_example_that_runs(name: str) -> None:
    examples = examples_of(named(name))
    assert examples, f"the docstring of {name} has no section `Examples:`"
    wrong = run(examples, name)
    assert not wrong, wrong


@pytest.mark.parametrize("name", [f"{owner}.{name}" for owner, names in CALLED_MOST.items() for name in names.split()])
def test_a_method_has_an_example_that_goes_on_from_that_of_its_class(name: str) -> None:
    owner = named(name.rpartition(".")[0])
    examples = examples_of(named(name))
    assert examples, f"the docstring of {name} has no section `Examples:`"
    wrong = run([*(examples_of(owner) if inspect.isclass(owner) else []), *examples], name)
    assert not wrong, wrong


def test_an_example_with_another_result_is_told() -> None:
    assert "Expected:\n    3\nGot:\n    2" in run(doctest.DocTestParser().get_examples(">>> 1 + 1\n3\n"), "sum")


def test_an_example_outside_of_a_section_is_none() -> None:
    def without() -> None:
        """Do nothing.

        >>> 1 + 1
        2
        """

    assert not examples_of(without)
