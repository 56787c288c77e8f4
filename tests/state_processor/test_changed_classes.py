"""Savepoints whose classes have changed since are read as a job would restore them (H4, H5)."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spec.virtual_job import LedgerSink, Timed, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state import migrations
from penstock.state.errors import StateMigrationError
from penstock.state_processor import PICKLED, SavepointReader, SavepointWriter
from penstock.state_processor.table import decode

MODULE = "library_of_the_tests"
PRELUDE = "from dataclasses import dataclass, field\nfrom typing import Any, NamedTuple\n"
BOOK = "@dataclass\nclass Book:\n    number: int\n"
WITH_TAGS = f"{BOOK}    tags: list[str] = field(default_factory=list)\n"


def library(source: str) -> Any:
    """Today's version of the user's module."""
    made = types.ModuleType(MODULE)
    sys.modules[MODULE] = made
    exec(PRELUDE + source, made.__dict__)
    return made


@pytest.fixture(autouse=True)
def no_traces() -> Iterator[None]:
    clear_ledger()
    yield
    sys.modules.pop(MODULE, None)
    for path in migrations.registered():
        migrations.unregister(path)


class Keep(KeyedProcessFunction):
    """Keeps a book a record, in a state of each kind."""

    def open(self, runtime_context: Any) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value"))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list"))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        book = sys.modules[MODULE].Book(value[1])
        self.value.update(book)
        self.list.add(book)
        self.map.put(value[1], book)
        yield value


@pytest.fixture
def savepoint(tmp_path: Path) -> str:
    library(BOOK)
    env = environment(1)
    timed = env.from_source(Timed(100, (50,)), WatermarkStrategy.no_watermarks(), "timed").uid("timed")
    timed.key_by(lambda value: value[0]).process(Keep()).uid("keep").sink_to(LedgerSink("out")).uid("out")
    job = VirtualJob(env)
    job.at(250, lambda: job.stop_with_savepoint(False, str(tmp_path)))
    assert job.run() is JobStatus.FINISHED
    (path,) = tmp_path.iterdir()
    return str(path)


READS: list[Callable[[SavepointReader], Any]] = [
    lambda reader: reader.read_value_state("keep", "value"),
    lambda reader: reader.read_list_state("keep", "list"),
    lambda reader: reader.read_map_state("keep", "map"),
    lambda reader: reader.read_keyed_state("keep", "value"),
]


@pytest.mark.parametrize("read", READS)
def test_a_new_field_has_its_default(savepoint: str, read: Callable[[SavepointReader], Any]) -> None:
    """H4, H5: that of a factory too, each instance its own; in rows, in columns, and in pickles."""
    library(WITH_TAGS)
    table = read(SavepointReader.read(savepoint))
    books = [row[-1] for row in table]
    assert books
    assert all(vars(book) == {"number": book.number, "tags": []} for book in books)
    assert len({id(book.tags) for book in books}) == len(books)
    numbers = [book.number for book in books]
    assert [decode(cell).tags for cell in table.to_arrow()["value"].to_pylist()] == [[]] * len(numbers)


def test_as_a_column_of_a_type_that_is_said(savepoint: str) -> None:
    """H5: the fields of today are those of the struct."""
    today = library(WITH_TAGS.replace("list[str]", "str").replace("default_factory=list", "default='none'"))
    table = SavepointReader.read(savepoint).read_value_state("keep", "value", value_type=today.Book)
    assert table.to_arrow()["value"].to_pylist() == [{"number": 2, "tags": "none"}]


def test_a_field_without_default_is_an_error(savepoint: str) -> None:
    """H4, H5: which names the state, the operator and the field."""
    library(f"{BOOK}    tags: Any\n")
    table = SavepointReader.read(savepoint).read_value_state("keep", "value", value_type=PICKLED)
    with pytest.raises(StateMigrationError, match=r"'keep': state 'value': field 'tags' of class 'Book'"):
        list(table)
    with pytest.raises(StateMigrationError, match="field 'tags' of class 'Book'"):
        table.to_arrow()


def test_what_is_registered_counts(savepoint: str) -> None:
    """H4, H5: a class that has another name."""
    today = library(BOOK.replace("Book", "Volume"))
    migrations.register(f"{MODULE}:Book", today.Volume)
    (row,) = SavepointReader.read(savepoint).read_value_state("keep", "value")
    assert row == (0, today.Volume(2))


def test_what_is_transformed_has_the_fields_of_today(savepoint: str, tmp_path: Path) -> None:
    """H5: the function is given them, and the new savepoint has them."""
    library(WITH_TAGS)

    def tagged(key: Any, book: Any) -> Any:
        book.tags.append("kept")
        return book

    writer = SavepointWriter.from_existing_savepoint(savepoint)
    writer.transform_state("keep", "value", tagged)
    changed = writer.write(str(tmp_path / "changed"))
    (row,) = SavepointReader.read(changed).read_value_state("keep", "value")
    assert vars(row[1]) == {"number": 2, "tags": ["kept"]}
