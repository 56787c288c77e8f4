"""Random databases, routes, transforms and behaviors, with restarts at random moments, against a plain model.

`python -m tests.cdc.random_pipelines --histories 500` runs the steps of a pipeline one after another: the source's
parser, both keyed functions, the writer, the committer. Checkpoints come at random; some histories restart from the
last one, and some commits break off between two steps and are repeated. In the end the target must have the columns and
rows that the model has, which knows nothing of states, steps and commits. A failure prints its seed.
"""

from __future__ import annotations

import datetime
import json
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import click
from tests.cdc.database import Database

from penstock.cdc.definition import parse_definition
from penstock.cdc.operators import EvolutionFunction, TransformFunction, get_sink_key, get_source_key
from penstock.cdc.schemas import SchemaEvolution
from penstock.cdc.sinks import IS_DELETED, StagedSink, Step, TableTarget
from penstock.cdc.sources import parse_event
from penstock.cdc.tables import Router
from penstock.cdc.transform import Transforms
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import SchemaChangeEvent, TableId, TableSchema

#: Types without a wider one are enough where tables are merged.
INT32 = range(-(1 << 31), 1 << 31)
PROJECTIONS = {"": None, "m": r"\*, n + 1 AS m", "two": "id, UPPER(name) AS name"}


class BrokenOffError(Exception):
    """A commit ends between two steps."""


class Memory(TableTarget):
    """Tables in memory, with the number of the last step of each run."""

    def __init__(self, chance: random.Random) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self._chance = chance
        self.breaks_off = False

    def _note(self, table: dict[str, Any], name: Any) -> bool:
        """Whether a step is new; notes it."""
        if table["ledger"].get(name.key, 0) >= name.number:
            return False
        table["ledger"][name.key] = name.number
        return True

    def _may_break_off(self) -> None:
        if self.breaks_off and self._chance.random() < 0.3:
            raise BrokenOffError

    def create_table(self, table_id: TableId, schema: TableSchema, name: Any) -> None:
        new: dict[str, Any] = {"columns": list(schema.names), "rows": {}, "ledger": {}}
        table = self.tables.setdefault(str(table_id), new)
        if self._note(table, name):
            table["columns"] += [column for column in schema.names if column not in table["columns"]]
        self._may_break_off()

    def drop_table(self, table_id: TableId, name: Any) -> None:
        table = self.tables.get(str(table_id))
        if table is not None and self._note(table, name):
            del self.tables[str(table_id)]
        self._may_break_off()

    def change_schema(self, table_id: TableId, change: SchemaChangeEvent, name: Any) -> None:
        table = self.tables[str(table_id)]
        if self._note(table, name):
            columns, rows = table["columns"], table["rows"]
            match change:
                case events.AddColumnEvent(column=column, position=position):
                    assert column.name not in columns
                    at = 0 if position.first else len(columns)
                    at = columns.index(position.after) + 1 if position.after is not None else at
                    columns.insert(at, column.name)
                    for row in rows.values():
                        row[column.name] = None
                case events.DropColumnEvent(name=column_name):
                    columns.remove(column_name)
                    for row in rows.values():
                        row.pop(column_name, None)
                case events.RenameColumnEvent(name=old, new_name=new):
                    columns[columns.index(old)] = new
                    for row in rows.values():
                        row[new] = row.pop(old, None)
                case events.TruncateTableEvent():
                    rows.clear()
        self._may_break_off()

    def write_rows(self, table_id: TableId, step: Step, is_in_doubt: bool) -> None:
        table = self.tables[str(table_id)]
        assert step.schema is not None
        if self._note(table, step.name):
            for row in step.rows().to_pylist():
                gone = row.pop(IS_DELETED)
                key = tuple(row[name] for name in step.schema.primary_key)
                assert set(row) <= set(table["columns"]), "rows of another schema"
                if gone:
                    table["rows"].pop(key, None)
                else:
                    table["rows"][key] = dict.fromkeys(table["columns"]) | row
        self._may_break_off()


class _State:
    """A value for each key."""

    def __init__(self, owner: _Runtime, name: str) -> None:
        self._owner, self._name = owner, name

    def _at(self) -> Any:
        return self._name, self._owner.key

    def value(self) -> Any:
        kept = self._owner.states.get(self._at())
        return None if kept is None else pickle.loads(kept)

    def update(self, value: Any) -> None:
        self._owner.states[self._at()] = pickle.dumps(value)

    def clear(self) -> None:
        self._owner.states.pop(self._at(), None)


class _Runtime:
    """What a keyed function knows of its task."""

    def __init__(self, states: dict[Any, bytes]) -> None:
        self.states = dict(states)
        self.key: Any = None
        self.count = 0

    def get_state(self, descriptor: Any) -> _State:
        return _State(self, descriptor.name)

    def get_metrics_group(self) -> Any:
        return self

    def counter(self, name: str) -> Any:
        return self

    def inc(self) -> None:
        self.count += 1

    def get_task_name(self) -> str:
        return "task"

    def timer_service(self) -> Any:
        return self

    def current_processing_time(self) -> int:
        return 0


class _WriterContext:
    subtask_index, parallelism, attempt, job_id, operator_id = 0, 1, 0, "job", "sink"
    restored_checkpoint_id, forerunners, owes_nothing = None, (), False

    def __init__(self, run: str) -> None:
        self.run = run

    def now_ms(self) -> int:
        return 1

    def count(self, name: str, increment: int = 1) -> None:
        """Not of interest."""


class Machine:
    """The steps of a pipeline in one run."""

    def __init__(self, history: History, states: tuple[dict[Any, bytes], dict[Any, bytes]], run: str) -> None:
        definition = history.definition
        transforms = Transforms(definition.transforms, (), datetime.UTC)
        evolution = SchemaEvolution(definition.behavior, definition.included, history.refuses)
        self.transform = TransformFunction(transforms, Router(definition.routes), datetime.UTC)
        self.evolution = EvolutionFunction(evolution, datetime.UTC)
        self.runtimes = [_Runtime(of_function) for of_function in states]
        self.transform.open(self.runtimes[0])
        self.evolution.open(self.runtimes[1])
        self.writer: Any = StagedSink(None).create_writer(_WriterContext(run))  # type: ignore[arg-type]

    def process(self, event: Any) -> None:
        self.runtimes[0].key = get_source_key(event)
        for routed in list(self.transform.process_element(event, self.runtimes[0])):
            self.runtimes[1].key = get_sink_key(routed)
            self.writer.write_batch(list(self.evolution.process_element(routed, None)), None)

    def snapshot(self) -> tuple[dict[Any, bytes], dict[Any, bytes]]:
        return dict(self.runtimes[0].states), dict(self.runtimes[1].states)


class History:
    """A pipeline and a database of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.behavior = chance.choice(["evolve", "evolve", "lenient", "try_evolve", "ignore"])
        self.merges = chance.random() < 0.3
        self.projection = chance.choice(list(PROJECTIONS))
        self.filters = chance.random() < 0.4
        rules = "" if PROJECTIONS[self.projection] is None else f", projection: '{PROJECTIONS[self.projection]}'"
        rules += ", filter: n > 0" if self.filters else ""
        transform = f"transform: [{{source-table: 'shop.\\.*'{rules}}}]" if rules else ""
        target = "lake.all" if self.merges else chance.choice(["lake.x_<>", ""])
        self.prefix = None if self.merges else ("lake.x_" if target else "shop.")
        route = f"route: [{{source-table: 'shop.\\.*', sink-table: {target}, replace-symbol: <>}}]" if target else ""
        self.definition = parse_definition(
            f"source: {{type: values, path: e}}\nsink: {{type: print}}\n{transform}\n{route}\n"
            f"pipeline: {{schema.change.behavior: {self.behavior}}}"
        )
        # A sink as Delta Lake is one where it is told to try.
        self.cannot = (events.RenameColumnEvent, events.DropColumnEvent) if self.behavior == "try_evolve" else ()
        self.database = self._make()

    def refuses(self, schema: TableSchema, change: SchemaChangeEvent) -> str | None:
        return "it cannot" if isinstance(change, self.cannot) else None

    def _make(self) -> Database:
        chance = self.chance
        database = Database(chance)
        names = [f"shop.t{number}" for number in range(chance.randint(1, 3))]
        for name in names:
            database.create(name, ("id",), 0 if self.merges else None)
        for _ in range(chance.randint(10, 150)):
            name = chance.choice(names)
            does = chance.random()
            if name not in database.tables:
                database.create(name, ("id",), 0)  # a column that comes back has the type that it had
            elif does < 0.85:
                database.change_row(name)
            elif does < 0.96:
                database.change_schema(name)
            elif does < 0.98:
                database.truncate(name)
            else:
                database.drop(name)
        return database

    # --- the model ----------------------------------------------------------------------------------------------------

    def expected(self) -> dict[str, dict[str, Any]]:
        """The tables of the target: their columns and their rows by key."""
        model = _Model(self)
        for line in self.database.lines:
            model.take(line)
        return model.tables


class _Model:
    def __init__(self, history: History) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self._history, self._sources = history, dict[str, dict[str, str]]()
        self._follows = history.behavior != "ignore"

    def _target(self, name: str) -> str:
        prefix = self._history.prefix
        return "lake.all" if prefix is None else prefix + name.removeprefix("shop.")

    def _shape(self, columns: dict[str, str]) -> dict[str, str]:
        if self._history.projection == "two":
            return {"id": "INT", "name": "STRING"}
        return columns | ({"m": "INT"} if self._history.projection == "m" else {})

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        if self._history.projection == "two":
            name = row["name"]
            return {"id": row["id"], "name": None if name is None else name.upper()}
        return row | ({"m": None if row["n"] is None else row["n"] + 1} if self._history.projection == "m" else {})

    def _passes(self, row: dict[str, Any] | None) -> bool:
        return row is not None and (not self._history.filters or (row["n"] is not None and row["n"] > 0))

    def take(self, line: dict[str, Any]) -> None:
        (kind, name), *_ = line.items()
        target = self._target(name)
        table = self.tables.get(target)
        behavior = self._history.behavior
        is_shared = len([source for source in self._sources if self._target(source) == target]) > 1
        keeps = is_shared or behavior in ("lenient", "ignore")
        match kind:
            case "create":
                self._sources[name] = {c: kind.removesuffix(" NOT NULL") for c, kind in line["columns"].items()}
                shape = self._shape(self._sources[name])
                if table is None:
                    self.tables[target] = {"columns": dict(shape), "rows": {}}
                elif self._follows:
                    self._widen(table, shape)
            case "insert" | "update" | "delete":
                self._change_row(table, line, kind)
            case "drop-table":
                del self._sources[name]
                if not keeps:
                    del self.tables[target]
            case "truncate":
                if not keeps and table is not None:
                    table["rows"].clear()
            case _:
                before = self._shape(self._sources[name])
                self._change_source(kind, name, line)
                after = self._shape(self._sources[name])
                if self._follows and table is not None and before != after:
                    self._change_columns(table, kind, line, after, keeps or behavior == "try_evolve")

    def _widen(self, table: dict[str, Any], shape: dict[str, str]) -> None:
        for column, kind in shape.items():
            if column not in table["columns"]:
                table["columns"][column] = kind
                for row in table["rows"].values():
                    row[column] = None

    def _change_source(self, kind: str, name: str, line: dict[str, Any]) -> None:
        columns = self._sources[name]
        if kind == "drop-column":
            del columns[line["name"]]
        elif kind == "rename-column":
            self._sources[name] = {line["new-name"] if c == line["name"] else c: k for c, k in columns.items()}
        else:
            columns |= line["column"]

    def _change_columns(
        self, table: dict[str, Any], kind: str, line: dict[str, Any], after: dict[str, str], keeps: bool
    ) -> None:
        if kind == "drop-column" and not keeps:
            del table["columns"][line["name"]]
            for row in table["rows"].values():
                row.pop(line["name"], None)
        elif kind == "rename-column" and not keeps:
            old, new = line["name"], line["new-name"]
            table["columns"] = {new if c == old else c: k for c, k in table["columns"].items()}
            for row in table["rows"].values():
                row[new] = row.pop(old)
        elif kind == "rename-column" and self._history.behavior == "try_evolve" and not self._is_merged():
            return  # the sink cannot, and the values of the new column are lost
        elif kind in ("rename-column", "add-column"):
            added = line["new-name"] if kind == "rename-column" else next(iter(line["column"]))
            self._widen(table, {added: after[added]})
        elif kind == "alter-column":
            table["columns"] |= {c: k for c, k in line["column"].items() if c in table["columns"]}

    def _is_merged(self) -> bool:
        return self._history.merges and len(self._sources) > 1

    def _change_row(self, table: dict[str, Any] | None, line: dict[str, Any], kind: str) -> None:
        if table is None:
            return
        before = line.get("before") if kind == "update" else line["row"] if kind == "delete" else None
        after = line.get("after") if kind == "update" else line["row"] if kind == "insert" else None
        if before is not None and self._passes(before):
            table["rows"].pop((before["id"],), None)
        if self._passes(after):
            assert after is not None
            row = self._row(after)
            table["rows"][after["id"],] = {
                column: _stored(row.get(column), kind) for column, kind in table["columns"].items()
            }


def _stored(value: Any, kind: str) -> Any:
    """A value as a column of the type keeps it."""
    return None if kind == "INT" and value is not None and value not in INT32 else value


def _normal(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    text = str(float(value)) if isinstance(value, float) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def normal(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        name: (
            sorted(table["columns"]),
            {key: {column: _normal(value) for column, value in row.items()} for key, row in table["rows"].items()},
        )
        for name, table in tables.items()
    }


def run_history(seed: int) -> None:
    """Run one history; raises `AssertionError` if the target is wrong."""
    history = History(seed)
    chance, lines = random.Random(seed + 1), history.database.lines
    target = Memory(chance)
    runs = iter(f"run{number}" for number in range(1_000_000))
    position, schemas = 0, dict[TableId, TableSchema]()
    machine = Machine(history, ({}, {}), next(runs))
    checkpoint: Any = (0, {}, machine.snapshot(), [])

    def commit(staged: list[Any], is_in_doubt: bool) -> None:
        for steps in staged:
            target.apply(steps.table_id, steps.steps, is_in_doubt)

    while True:
        is_end = position == len(lines)
        does = chance.random()
        if is_end or does < 0.06:
            staged = machine.writer.prepare_commit()
            checkpoint = (position, dict(schemas), machine.snapshot(), pickle.loads(pickle.dumps(staged)))
            target.breaks_off = chance.random() < 0.4
            try:
                commit(checkpoint[3], False)
                target.breaks_off = False
                if is_end:
                    break
                continue
            except BrokenOffError:
                does = 1.0
        if does > 0.96:
            target.breaks_off = False
            position, known, states, staged = checkpoint
            schemas = dict(known)
            machine = Machine(history, states, next(runs))
            commit(staged, True)
            if position == len(lines):
                break
            continue
        event = parse_event(json.dumps(lines[position]), schemas)
        position += 1
        machine.process(event)
    expected, found = normal(history.expected()), normal(target.tables)
    assert found == expected, f"seed {seed} ({history.behavior}): {difference(found, expected)}"


def difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            if name not in found or name not in expected:
                return f"table {name} is {'missing' if name in expected else 'too many'}"
            (columns, rows), (other_columns, other_rows) = found[name], expected[name]
            if columns != other_columns:
                return f"{name} has the columns {columns}, expected {other_columns}"
            for key in sorted({*rows, *other_rows}):
                if rows.get(key) != other_rows.get(key):
                    return f"{name}, row {key}: {rows.get(key)}, expected {other_rows.get(key)}"
    return "no difference"


def planted_bugs() -> Iterator[tuple[str, Any, str, Callable[..., Any]]]:
    """Bugs that the histories must find: a name, and an attribute of a class with what takes its place."""
    from penstock.cdc import operators, schemas, sinks, transform

    evolve = operators.EvolutionFunction.process_element

    def keeps_converters(self: Any, value: Any, ctx: Any) -> Iterator[Any]:
        before = dict(self._converters)
        result = list(evolve(self, value, ctx))
        self._converters |= before
        return iter(result)

    yield "rows are converted as before a change", operators.EvolutionFunction, "process_element", keeps_converters

    write = sinks._StagedWriter.write_batch

    def does_not_close(self: Any, values: list[Any], timestamps: Any) -> None:
        close = self._close_rows
        self._close_rows = lambda table_id: None
        write(self, values, timestamps)
        self._close_rows = close

    yield "rows before a change are written after it", sinks._StagedWriter, "write_batch", does_not_close

    add = sinks._OpenRows.add

    def forgets_the_key(self: Any, event: Any) -> None:
        from dataclasses import replace

        add(self, event if event.after is None else replace(event, before=None))

    yield "a row with another key stays where it was", sinks._OpenRows, "add", forgets_the_key

    apply = transform.TableTransform.apply

    def never_deletes(self: Any, event: Any) -> Any:
        result = apply(self, event)
        return None if result is not None and result.kind is not event.kind and result.after is None else result

    yield "a row that leaves the filter stays", transform.TableTransform, "apply", never_deletes

    derived = schemas.SchemaEvolution._derived

    def ignores_lenient(self: Any, schema: Any, sink_id: Any, event: Any, is_lenient: bool, is_shared: bool) -> Any:
        return derived(self, schema, sink_id, event, False, is_shared)

    yield "lenient renames and drops", schemas.SchemaEvolution, "_derived", ignores_lenient
    yield "a step is applied again", Memory, "_note", lambda self, table, name: True
    yield "the state of sink tables is lost", _State, "update", lambda self, value: None

    def drops_nothing(self: Any, table_id: TableId, steps: Any, is_in_doubt: bool) -> None:
        for step in steps:
            if step.schema is not None:
                self.write_rows(table_id, step, is_in_doubt)
            elif isinstance(step.change, events.CreateTableEvent):
                self.create_table(table_id, step.change.schema, step.name)
            elif not isinstance(step.change, events.DropTableEvent):
                self.change_schema(table_id, step.change, step.name)

    yield "a dropped table stays", sinks.TableTarget, "apply", drops_nothing


@click.command(help=__doc__)
@click.option("--histories", default=500, show_default=True)
@click.option("--seed", type=int, default=None, help="Of the first history.")
def main(histories: int, seed: int | None) -> None:
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seeds {seed} to {seed + histories - 1}")
    for number in range(histories):
        try:
            run_history(seed + number)
        except BaseException:
            click.echo(f"python -m tests.cdc.random_pipelines --histories 1 --seed {seed + number}")
            raise
    click.echo(f"{histories} histories: each target is as the model has it")


if __name__ == "__main__":
    main()
