"""What SQL programs give, beside Flink's answers: `python -m tests.table.programs FILE [--restore] [--only TEXT]`.

FILE is JSON: programs with tables, rows before and after a restore, statements, and the rows that arrive at sinks. Each
program runs in this process; with `--restore` it is stopped with a savepoint after the first rows, and restored for
the others. Each one that gives something else is printed. `--target` says where: `local` (the default) or `spark`.
"""

from __future__ import annotations

import json
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pyarrow as pa
from tests.table.batch.batches import rows_of
from tests.table.flink_values import held
from tests.table.later_lookup import LaterLookup
from tests.table.planned import create, manager_of
from tests.table.waiting_columns import ColumnsThenWait

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError, UnsupportedError
from penstock.connectors.collect import CollectedRecords, CollectSink
from penstock.core.operators.sink.sink import SinkOperator
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.clock import SystemClock
from penstock.drivers.local import job as local_job
from penstock.plan.transformation import Transformation
from penstock.table.catalog.manager import CatalogManager
from penstock.table.connectors.lookup import ColumnsLookup, TableLookup
from penstock.table.connectors.tables import TableReader, TableWriter
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import column_of
from penstock.table.functions.row_text import row_text
from penstock.table.plan import logical
from penstock.table.plan.changes import ALL, INSERTS, SHORT, Changes
from penstock.table.sql import SqlParserError, parse_script, statements
from penstock.table.statements.insert import target, write_of, write_plan
from penstock.table.streaming.planning.lookups import Lookups
from penstock.table.streaming.planning.options import plan_options
from penstock.table.streaming.planning.planner import StreamPlanner
from penstock.table.streaming.rows.sessions import StreamSession

PATIENCE_S = 20.0
KINDS = {short: number for number, short in enumerate(SHORT)}


class NotApplicableError(Exception):
    """A program that is about Java, or about what no runtime shows."""


@dataclass
class Insert:
    """A query, and the sink that its rows go to."""

    write: logical.Write
    sink: dict[str, Any]
    types: list[DataType]


class _NextDay(SystemClock):
    """The clock after a restore: nobody restores a job in the second in which it stopped."""

    def now_ms(self) -> int:
        return super().now_ms() + 24 * 3_600_000


#: what a changelog mode calls the kinds of rows
_MODES = {"+I": "I", "-U": "UB", "+U": "UA", "-D": "D"}


class Program:
    """One program of the file."""

    def __init__(self, case: dict[str, Any], restores: bool) -> None:
        self._kind = "SQL"
        self.case = case
        self.restores = restores
        self.sinks = {one["name"]: one for one in case["sinks"]}
        self.sources = {one["name"]: one for one in case["sources"]}
        self._clock: type[SystemClock] = SystemClock

    def manager(self) -> CatalogManager:
        """A manager that knows the program's tables and views."""
        manager = manager_of(*(one["ddl"] for one in (*self.case["sources"], *self.case["sinks"])))
        for text in self.case["setup_sql"] or []:
            create(manager, text)
        return manager

    # --- statements --------------------------------------------------------------------------------------------------

    def inserts(self, manager: CatalogManager) -> list[Insert]:
        """The queries of the program, with their sinks."""
        found = []
        for step in self.case["run"]:
            if step["step"] != self._kind:
                continue
            if step["step"] == "SQL":
                for statement in parse_script(step["sql"]):
                    found += self._inserts_of(statement, manager)
            elif step["step"] == "TABLE_API":
                if not self.case.get("table_api_as_sql"):
                    raise NotApplicableError("a program of the Table API without SQL")
                (statement,) = parse_script(self.case["table_api_as_sql"])
                assert isinstance(statement, statements.QueryStatement)
                plan = manager.analyser().query(statement.query)
                session = _session(manager)
                found.append(self._insert(write_plan(session, *target(session, (self.case["table_api_sink"],)), plan)))
        return found

    def _inserts_of(self, statement: statements.Statement, manager: CatalogManager) -> list[Insert]:
        match statement:
            case statements.Insert():
                return [self._insert(write_of(_session(manager), statement))]
            case statements.StatementSet():
                return [one for insert in statement.inserts for one in self._inserts_of(insert, manager)]
            case statements.Execute():
                return self._inserts_of(statement.statement, manager)
            case _:
                raise NotApplicableError(f"a step that is no INSERT: {type(statement).__name__}")

    def _insert(self, write: logical.Write) -> Insert:
        return Insert(write, self.sinks[write.path[-1]], write.schema.types)

    # --- running -----------------------------------------------------------------------------------------------------

    def check(self) -> str:
        """What is wrong with the program's answers, or nothing."""
        failing = [step for step in self.case["run"] if step["step"] == "FAILING_SQL"]
        if failing:
            return "".join(map(self._check_failing, failing))
        for kind in dict.fromkeys(step["step"] for step in self.case["run"]):
            # A program that is given twice, as SQL and by the Table API, runs twice.
            self._kind = kind
            wrong = self._check_kind()
            if wrong:
                return f"{kind}: {wrong}"
        return ""

    def _check_kind(self) -> str:
        if not self.restores:
            in_stream = (self.case.get("flink_2_3_one_go") or {}).get("streaming") or {}
            is_stream = "streaming" in self.case["runs_in"] or in_stream.get("ok", False)
            rows = self._run(with_after=True, waits=False) if is_stream else self._run_in_batch()
            wrong = self._compare(rows, ("expected_before_strings", "expected_after_strings"))
            return "" if wrong and self._is_flinks_in_one_go(rows) else wrong
        with tempfile.TemporaryDirectory() as folder:
            before, savepoint = self._run_until_stopped(folder)
            wrong = self._compare(before, ("expected_before_strings",))
            if wrong or not self.case["restore"]:
                return wrong
            # Windows of processing time fire by the clock, and not at the end of the source.
            run = self._run_for_a_while if self.case["after_restore_source"] == "INFINITE" else self._run_to_the_end
            self._clock = _NextDay
            after = run(savepoint)
            return self._compare(after, ("expected_after_strings",))

    def _check_failing(self, step: dict[str, Any]) -> str:
        try:
            manager = self.manager()
            inserts = [one for statement in parse_script(step["sql"]) for one in self._inserts_of(statement, manager)]
            self._start(inserts, manager, True, False, None)[0].wait()
        except (PenstockError, SqlParserError):
            return ""
        return f"no error: {step['message'][:100]!r}"

    def _run(self, with_after: bool, waits: bool, savepoint: str | None = None) -> dict[str, list[str]]:
        manager = self.manager()
        job, rows = self._start(self.inserts(manager), manager, with_after, waits, savepoint)
        job.wait()
        return rows

    def _run_in_batch(self) -> dict[str, list[str]]:
        """What the program gives as Spark SQL, for those that Flink does not run as streams."""
        manager = self.manager()
        reader = partial(self._reader, with_after=True, waits=False)
        found: dict[str, list[str]] = {}
        for insert in self.inserts(manager):
            text = row_text(insert.types)
            rows = rows_of(insert.write.input, reader)
            found.setdefault(insert.sink["name"], []).extend(text("+I", values) for values in rows)
        return found

    def _run_to_the_end(self, savepoint: str) -> dict[str, list[str]]:
        return self._run(with_after=True, waits=False, savepoint=savepoint)

    def _run_for_a_while(self, savepoint: str) -> dict[str, list[str]]:
        manager = self.manager()
        job, rows = self._start(self.inserts(manager), manager, True, True, savepoint)
        self._await(job, rows, ("expected_after_strings",))
        job.cancel().result(PATIENCE_S)
        return rows

    def _await(self, job: Any, rows: dict[str, list[str]], parts: Sequence[str]) -> None:
        """Wait for rows to arrive; not for ever."""
        deadline = time.monotonic() + PATIENCE_S
        while self._compare(rows, parts) and time.monotonic() < deadline:
            if job.get_job_execution_result().done():
                job.wait()
            time.sleep(0.01)

    def _run_until_stopped(self, folder: str) -> tuple[dict[str, list[str]], str]:
        manager = self.manager()
        job, rows = self._start(self.inserts(manager), manager, False, True, None)
        self._await(job, rows, ("expected_before_strings",))
        time.sleep(0.05)
        path = job.stop_with_savepoint(False, folder).result(PATIENCE_S)
        return rows, str(path)

    def _start(
        self,
        inserts: list[Insert],
        manager: CatalogManager,
        with_after: bool,
        waits: bool,
        savepoint: str | None,
    ) -> tuple[Any, dict[str, list[str]]]:
        configuration = Configuration()
        configuration.set_string("execution.target", "local")
        if savepoint is not None:
            configuration.set_string("execution.state-recovery.path", savepoint)
        environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        environment.set_parallelism(1)
        planner = StreamPlanner(
            environment.add,
            lambda scan: self._reader(scan, with_after, waits),
            StreamSession(),
            manager.calls(),
            lookups=Lookups(lambda scan, key: self._lookup(scan, key, with_after), self.case["config"] or {}),
            options=plan_options(self.case["config"] or {}),
        )
        rows: dict[str, list[str]] = {}
        for insert in inserts:
            self._collect(environment, planner, insert, rows)
        with mock.patch.object(local_job, "SystemClock", self._clock):
            return environment.execute_async(self.case["uid"]), rows

    def _collect(self, environment: Any, planner: StreamPlanner, insert: Insert, rows: dict[str, list[str]]) -> None:
        name = insert.sink["name"]
        arrived = rows.setdefault(name, [])
        records, text = CollectedRecords(), row_text(insert.types)

        def take(subtask: int, frame: bytes) -> None:
            arrived.extend(text(SHORT[kind], values) for kind, values in records.take(frame))

        sink = CollectSink(True)
        upstreams = planner.written(insert.write, _writer(insert.sink, sink))
        operator = lambda: SinkOperator(sink)  # noqa: E731 - each task makes its own
        environment.add(
            Transformation("Sink", operator, upstreams, name=name, is_stateful=True, sink=sink, client_handler=take)
        )

    def _lookup(self, scan: logical.Scan, key: Sequence[int], with_after: bool) -> TableLookup:
        """A table that is asked has no restored state: of a primary key it has the last row."""
        source = self.sources[scan.path[2]]
        if source["options"].get("disable-lookup") == "true":
            raise UnsupportedError("Processing-time temporal join is not supported yet.")
        data = source["rows_before"] + (source["rows_after"] if with_after else [])
        if scan.key:
            data = list({tuple(row[place + 1] for place in scan.key): row for row in data}.values())
        columns = pa.Table.from_batches([_columns(data, scan)])
        is_async = source["options"].get("async") == "true"
        return TableLookup(
            tuple(key),
            partial(ColumnsLookup, columns, key),
            partial(LaterLookup, columns, tuple(key)) if is_async else None,
        )

    def _reader(self, scan: logical.Scan, with_after: bool, waits: bool) -> TableReader:
        source = self.sources[scan.path[2]]
        data = source["rows_before"] + (source["rows_after"] if with_after else [])
        batch = _columns(data, scan)
        kinds = bytes(KINDS[row[0]] for row in data)
        mode = set((source["mode"] or "I").split(","))
        if mode == {"I"}:
            # Some tables of the file say that rows only come, and have others all the same.
            mode |= {_MODES[row[0]] for row in data}
        changes = _changes(mode)
        is_upsert = "UA" in mode and "UB" not in mode
        columns = ColumnsThenWait(batch, kinds if any(kinds) else None, 1, waits)
        is_by_key = source["options"].get("source.produces-delete-by-key") == "true"
        return TableReader(columns, changes, "UB" in mode, scan.key, is_upsert, not is_by_key)

    def _compare(self, rows: dict[str, list[str]], parts: Sequence[str]) -> str:
        for name, sink in self.sinks.items():
            if not any(sink[part] for part in parts) and sink["compare"] == "materialized":
                continue
            if sink["compare"] == "materialized":
                wrong = self._compare_tables(sink, rows.get(name, []), parts)
                if wrong:
                    return wrong
                continue
            wanted = Counter(_folded(sink, [row for part in parts for row in sink[part] or []]))
            found = Counter(_folded(sink, rows.get(name, [])))
            if wanted != found:
                missing, extra = sorted((wanted - found).elements()), sorted((found - wanted).elements())
                return f"{name}: missing {missing[:6]}, extra {extra[:6]}"
        return ""

    def _is_flinks_in_one_go(self, rows: dict[str, list[str]]) -> bool:
        """Whether it is what Flink gives where it reads all rows in one go, and gives something else than in two."""
        flinks = ((self.case.get("flink_2_3_one_go") or {}).get("streaming") or {}).get("sinks") or {}
        return all(_is_same(flinks.get(name, {}), sink, rows.get(name, [])) for name, sink in self.sinks.items())

    def _compare_tables(self, sink: dict[str, Any], rows: Sequence[str], parts: Sequence[str]) -> str:
        """As `_compare`, for the table that a changelog stands for."""
        expected = [row for part in parts for row in sink[part] or []]
        whole = None if self.restores else sink["expected_materialized_strings"]
        wanted = Counter(_folded(sink, whole or expected))
        found: Counter[str] = Counter()
        for row in _folded(sink, rows):
            found[f"+I{row[2:]}"] += 1 if row[0] == "+" else -1
        found = +found
        return "" if found == wanted else f"{sink['name']}: table {sorted(found)[:6]}, not {sorted(wanted)[:6]}"


def _is_same(flinks: dict[str, Any], sink: dict[str, Any], rows: Sequence[str]) -> bool:
    """Whether rows are those that Flink gives in one go, or, where only its table is as expected, stand for this."""
    raw = flinks.get("raw")
    if raw is not None and Counter(raw) == Counter(rows):
        return True
    return bool(flinks.get("net_equal")) and table_of(sink, rows) == Counter(flinks["materialized"])


def table_of(sink: dict[str, Any], rows: Sequence[str]) -> Counter[str]:
    """The table that changes stand for, by the key of those that come without the rows as they were."""
    if sink["upserts_by_key"]:
        return Counter(_by_key(rows, sink["upserts_by_key"]))
    found: Counter[str] = Counter()
    for row in rows:
        found[f"+I{row[2:]}"] += 1 if row[0] == "+" else -1
    return Counter({row: times for row, times in found.items() if times})


def _columns(data: Sequence[Sequence[Any]], scan: logical.Scan) -> pa.RecordBatch:
    """Rows of a file, which have their kinds first, as columns."""
    rows = [[held(value, kind) for value, kind in zip(row[1:], scan.schema.types, strict=False)] for row in data]
    arrays = [column_of([row[index] for row in rows], kind) for index, kind in enumerate(scan.schema.types)]
    return pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])


def _folded(sink: dict[str, Any], rows: Sequence[str]) -> list[str]:
    """What a sink that writes by key has after these rows; for others the rows as they are."""
    if sink["compare"] != "materialized" or not sink["dedup_fields"]:
        return list(rows)
    return _by_key(rows, sink["dedup_fields"])


def _by_key(rows: Sequence[str], places: Sequence[int]) -> list[str]:
    """The last row of each key."""
    found: dict[tuple[str, ...], str] = {}
    for row in rows:
        values = row[3:-1].split(", ")
        key = tuple(values[place] for place in places)
        if row[:2] in ("+I", "+U"):
            found[key] = f"+I{row[2:]}"
        elif row[:2] == "-D":
            found.pop(key, None)
    return list(found.values())


def _session(manager: CatalogManager) -> Any:
    """As much of a session as planning an INSERT asks for."""
    return SimpleNamespace(manager=manager)


def _writer(sink: dict[str, Any], records: CollectSink) -> TableWriter:
    """What a sink takes: what its options say, else rows by its primary key if it has one."""
    options = sink["options"]
    if options.get("sink-insert-only") == "true":
        return TableWriter(records, INSERTS)
    mode = options.get("changelog-mode")
    wants_before = "UB" in mode.split(",") if mode else sink["primary_key"] is None
    by_key = options.get("sink.supports-delete-by-key") == "true"
    accepts = ALL if mode is None else _changes(set(mode.split(",")))
    return TableWriter(records, accepts, wants_before, deletes_by_key=by_key)


def _changes(mode: set[str]) -> Changes:
    """The changes of a mode."""
    changes = INSERTS
    changes |= Changes.UPDATE if "UA" in mode else INSERTS
    changes |= Changes.DELETE if "D" in mode else INSERTS
    return changes


def outcome(case: dict[str, Any], restores: bool) -> str:
    """What is wrong, or nothing. Raises `NotApplicableError`."""
    if case["needs_java_udf"] or case["functions"] or case["models"]:
        raise NotApplicableError("functions in Java, or models")
    if restores and not case["restore"]:
        raise NotApplicableError("no restore")
    try:
        return Program(case, restores).check()
    except (PenstockError, SqlParserError) as error:
        cause = f" <- {error.__cause__}" if error.__cause__ is not None else ""
        return f"{type(error).__name__}: {error}{cause}"
    except NotApplicableError:
        raise
    except Exception as error:  # noqa: BLE001 - a runner goes on
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--restore", "restores", is_flag=True, help="Stop each program with a savepoint, and restore it.")
@click.option("--only", default="", help="Only programs whose id contains this.")
@click.option("--quiet", is_flag=True, help="Print the sums alone.")
def main(file: Path, restores: bool, only: str, quiet: bool) -> None:
    """Compare answers."""
    right = total = 0
    skipped: Counter[str] = Counter()
    for case in json.loads(file.read_text()):
        if only not in case["uid"]:
            continue
        try:
            wrong = outcome(case, restores)
        except NotApplicableError as error:
            skipped[str(error)] += 1
            continue
        total += 1
        right += not wrong
        if wrong and not quiet:
            print(f"{case['uid']}\n    {wrong[:500]}")
    for reason, count in skipped.items():
        print(f"{count} do not apply: {reason}")
    print(f"{right} of {total} programs give what Flink gives")


if __name__ == "__main__":
    main()
