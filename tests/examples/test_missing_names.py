"""The pages for programs that come from Flink call a name missing only as long as it is missing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import pytest
from tests.examples.pages import ROOT

import penstock.common
import penstock.datastream
import penstock.table
from penstock.common import Row
from penstock.datastream import SlotSharingGroup, StreamExecutionEnvironment
from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment
from penstock.table.expressions import col
from penstock.table.udf import TableAggregateFunction, udtaf

FROM_PYFLINK = "docs/coming-from-pyflink.md"
FROM_FLINK_SQL = "docs/coming-from-flink-sql.md"
#: Rows of the table that name no part of PyFlink.
WITHOUT_NAMES = ("Flink's own savepoints",)
#: The packages whose modules have the names of PyFlink's.
PACKAGES = (penstock.common, penstock.datastream, penstock.table)


def first_cells(page: str, heading: str) -> list[str]:
    """The first cell of each row of the table below a heading."""
    section = (ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)
    return rows[2:] if set(rows[1]) <= set("- ") else rows[1:]


def missing_names() -> Iterator[str]:
    for cell in first_cells(FROM_PYFLINK, "Not there, and why"):
        if not cell.startswith(WITHOUT_NAMES):
            names = re.findall(r"`([^`]+)`", re.sub(r" of a `\w+`", "", cell))
            assert names, f"{FROM_PYFLINK}: the row {cell!r} needs a name that a test can look for"
            yield from names


def missing_statements() -> list[str]:
    cells = first_cells(FROM_FLINK_SQL, "Statements that do not run")
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@cache
def public_modules() -> tuple[ModuleType, ...]:
    """The modules directly below the packages, with the connectors and formats of streams."""
    names = [package.__name__ for package in PACKAGES]
    names += ["penstock.datastream.connectors", "penstock.datastream.formats"]
    modules = [importlib.import_module(name) for name in names]
    for package in tuple(modules):
        found = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        modules += [importlib.import_module(module.name) for module in found]
    return tuple(modules)


@cache
def public_names() -> frozenset[str]:
    """The public names of these modules, and of the members of their classes."""
    names = set()
    for module in public_modules():
        for name, value in vars(module).items():
            names.add(name)
            if inspect.isclass(value) and value.__module__.startswith("penstock."):
                names.update(dir(value))
    return frozenset(name for name in names if not name.startswith("_"))


def has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def has_attribute(module: str, name: str) -> bool:
    return has_module(module) and hasattr(importlib.import_module(module), name)


def exists(name: str) -> bool:
    """Whether a module or a name of PyFlink is in Penstock; a name that ends with … stands for its beginning."""
    if name.startswith("pyflink."):
        name = name.replace("pyflink", "penstock", 1)
        return has_module(name) or has_attribute(*name.rsplit(".", 1))
    if name.endswith("…"):
        return any(public.startswith(name[:-1]) for public in public_names())
    return name in public_names()


class LastTwo(TableAggregateFunction):
    def create_accumulator(self):
        return []

    def accumulate(self, accumulator, number):
        accumulator.append(number)

    def emit_value(self, accumulator):
        yield from map(Row, accumulator[-2:])

    def get_accumulator_type(self):
        return DataTypes.ARRAY(DataTypes.INT())

    def get_result_type(self):
        return DataTypes.ROW([DataTypes.FIELD("number", DataTypes.INT())])


def aggregate_in_batch() -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    numbers = tables.from_elements([("a", 1)], ["key", "number"])
    last = udtaf(LastTwo())(col("number")).alias("number")
    numbers.group_by(col("key")).flat_aggregate(last).select(col("number")).explain()


def register_group(group: SlotSharingGroup.Builder) -> None:
    StreamExecutionEnvironment.get_execution_environment().register_slot_sharing_group(group.build())


#: What a program does with names that are there for their error alone.
REFUSED: dict[str, Callable[[], object]] = {
    "flat_aggregate": aggregate_in_batch,
    "set_python_requirements": lambda: StreamExecutionEnvironment.get_execution_environment().set_python_requirements(
        "requirements.txt"
    ),
    "add_classpaths": lambda: StreamExecutionEnvironment.get_execution_environment().add_classpaths("file:///a.jar"),
    "set_cpu_cores": lambda: register_group(SlotSharingGroup.builder("group").set_cpu_cores(1.0)),
    "set_task_heap_memory_mb": lambda: register_group(
        SlotSharingGroup.builder("group").set_cpu_cores(1.0).set_task_heap_memory_mb(10)
    ),
}
#: A statement of each kind.
STATEMENTS = {
    "LOAD MODULE hive": "LOAD MODULE hive",
    "ADD JAR": "ADD JAR 'functions.jar'",
    "DELETE": "DELETE FROM t WHERE a = 1",
    "UPDATE": "UPDATE t SET a = 1",
    "TRUNCATE TABLE": "TRUNCATE TABLE t",
    "ANALYZE TABLE": "ANALYZE TABLE t COMPUTE STATISTICS",
    "CALL": "CALL files.compact()",
    "SHOW JOBS": "SHOW JOBS",
    "STOP JOB": "STOP JOB '8c1f'",
}


@pytest.mark.parametrize("name", list(missing_names()))
def test_a_name_on_the_list_is_missing_or_refused(name: str) -> None:
    """A2: a part of PyFlink that has been built is taken off the list."""
    if name not in REFUSED:
        assert not exists(name), f"{name} exists: take it off the list in {FROM_PYFLINK}"
        return
    with pytest.raises(NotImplementedError):
        REFUSED[name]()


@pytest.mark.parametrize("name", missing_statements())
def test_a_statement_on_the_list_is_refused(name: str) -> None:
    """K3: a statement that does not run is refused."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'blackhole')")
    with pytest.raises(NotImplementedError):
        tables.execute_sql(STATEMENTS[name])


def test_the_search_finds_names_that_exist() -> None:
    present = ["pyflink.datastream.connectors.kafka", "pyflink.table.catalog.Catalog", "KafkaSource", "add_…"]
    assert [name for name in present if not exists(name)] == []
    assert set(REFUSED) <= set(missing_names())
