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
from typing import Any, Final
from unittest import mock

import click
from tests.table.batch.batches import compute_rows
from tests.table.planned import create
from tests.table.process.flink_programs import PROGRAMS
from tests.table.program_models import create_model
from tests.table.program_tables import Source, fold_changes, writer_of

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError
from penstock.connectors.collect import CollectedRecords, CollectSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.event_loop import SystemClock
from penstock.drivers.local import mini_cluster as local_job
from penstock.plan.transformation import Transformation
from penstock.runtime.operators.connector import SinkOperator
from penstock.sql.catalogs.catalog import Catalog
from penstock.sql.catalogs.sinks import write_plan
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.functions.text_casts import row_text
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import ALL, SHORT
from penstock.sql.parser import SqlParserError, parse_script, statements
from penstock.sql.session.session import LEGACY_CAST, TableConfig, TableSession, parse_zone
from penstock.sql.statements.insert import plan_insert, target
from penstock.sql.statements.run import run
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import Lookups, plan_options
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.connector import TableLookup
from penstock.sql.tables.tables import TableReader
from penstock.sql.user_functions.definition import call_settings
from penstock.table import EnvironmentSettings, TableEnvironment

PATIENCE_S: Final = 20.0
ON_CONFLICT: Final = "table.exec.sink.require-on-conflict"
#: what Flink's own tests set for all programs of a kind
_DEFAULTS: Final = {
    # Plans are of a version that did not know ON CONFLICT, and a plan that is restored is not checked again.
    "streaming-restore": {ON_CONFLICT: "false"},
    "streaming-semantic": {
        "table.optimizer.non-deterministic-update.strategy": "TRY_RESOLVE",
        # Programs with models write into tables with a key that their queries do not have.
        ON_CONFLICT: "false",
    },
}


class NotApplicableError(Exception):
    """A program that is about Java, or about what no runtime shows."""


@dataclass
class Insert:
    """A query, and the sink that its rows go to; None where they go nowhere."""

    plan: logical.Node
    sink: dict[str, Any] | None

    @property
    def types(self) -> list[DataType]:
        """The types of its rows."""
        return self.plan.schema.types


class _NextDay(SystemClock):
    """The clock after a restore: nobody restores a job in the second in which it stopped."""

    def now_ms(self) -> int:
        return super().now_ms() + 24 * 3_600_000


class Program:
    """One program of the file."""

    def __init__(self, case: dict[str, Any], restores: bool) -> None:
        self._kind = "SQL"
        self.case = case
        self.restores = restores
        self.sinks = {one["name"]: one for one in case["sinks"]}
        self.sources = {one["name"]: one for one in case["sources"]}
        self._clock: type[SystemClock] = SystemClock
        self.options = {"table.local-time-zone": "UTC"}
        for check in case.get("checks") or ():
            self.options |= _DEFAULTS.get(check, {})
        self.options |= case["config"] or {}
        #: with mini-batches another changelog counts, if it stands for the same table: the bundles decide which changes
        #: come in between, and groups come in the order of a hash map in Flink
        self.is_bundled = self.options.get("table.exec.mini-batch.enabled") == "true"
        #: whether a changelog was another one
        self.is_same_table_alone = False

    def session(self) -> TableSession:
        """A session that knows the program's options, tables and views."""
        session = TableSession(TableConfig(Configuration.from_dict(dict(self.options))), Catalog())
        for one in (*self.case["sources"], *self.case["sinks"]):
            create(session.manager, one["ddl"])
        for model in self.case.get("models") or ():
            create_model(session, model)
        for text in self.case["setup_sql"] or ():
            for statement in parse_script(text):
                run(session, statement)
        return session

    # --- statements --------------------------------------------------------------------------------------------------

    def inserts(self, session: TableSession) -> list[Insert]:
        """The queries of the program, with their sinks."""
        found = []
        for step in self.case["run"]:
            if step["step"] == self._kind:
                found += self._inserts_of_step(step, session)
        return found

    def _inserts_of_step(self, step: dict[str, Any], session: TableSession) -> list[Insert]:
        if step["step"] == "TABLE_API":
            if self.case["uid"] in PROGRAMS:
                return [self._query(self._by_methods(session), session)]
            if not self.case.get("table_api_as_sql"):
                raise NotApplicableError("a program of the Table API without SQL")
            return self._inserts_of_text(self.case["table_api_as_sql"], session)
        texts = _texts(step) or self.case["sql"] or []
        return [one for text in texts for one in self._inserts_of_text(text, session)]

    def _by_methods(self, session: TableSession) -> logical.Node:
        """The plan of a program of the Table API."""
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        environment._session = session
        return PROGRAMS[self.case["uid"]](environment.from_path, environment.from_call)._plan

    def _inserts_of_text(self, text: str, session: TableSession) -> list[Insert]:
        return [one for statement in parse_script(text) for one in self._inserts_of(statement, session)]

    def _inserts_of(self, statement: statements.Statement, session: TableSession) -> list[Insert]:
        match statement:
            case statements.Insert():
                write = plan_insert(session, statement)
                return [Insert(write, self.sinks[write.path[-1]])]
            case statements.QueryStatement():
                return [self._query(session.manager.analyser().result(statement.query), session)]
            case statements.StatementSet():
                return [one for insert in statement.inserts for one in self._inserts_of(insert, session)]
            case statements.Execute():
                return self._inserts_of(statement.statement, session)
            case statements.BeginStatementSet() | statements.EndStatementSet():
                return []
            case _:
                raise NotApplicableError(f"a step that is no INSERT: {type(statement).__name__}")

    def _query(self, plan: logical.Node, session: TableSession) -> Insert:
        """A query without INSERT: its rows go to the one sink that the program has."""
        name = self.case.get("table_api_sink") or (next(iter(self.sinks)) if len(self.sinks) == 1 else None)
        if name is None:
            return Insert(plan, None)
        return Insert(write_plan(session.manager, *target(session, (name,)), plan), self.sinks[name])

    # --- running -----------------------------------------------------------------------------------------------------

    def check(self) -> str:
        """What is wrong with the program's answers, or nothing. Raises `NotApplicableError` where nothing can run."""
        kinds = list(dict.fromkeys(step["step"] for step in self.case["run"]))
        failing = [kind for kind in kinds if kind.startswith("FAILING")]
        if failing:
            steps = [step for step in self.case["run"] if step["step"] == "FAILING_SQL"]
            if not steps:
                raise NotApplicableError("a step of the Table API that fails")
            return "".join(map(self._check_failing, steps))
        reasons, answer = [], ""
        for kind in kinds:
            # A program that is given twice, as SQL and by the Table API, runs twice. Flink's sink holds the rows of the
            # last run alone, so only these are those that are expected.
            self._kind = kind
            try:
                wrong = self._check_kind()
            except NotApplicableError as error:
                reasons.append(error)
                continue
            answer = f"{kind}: {wrong}" if wrong else ""
        if len(reasons) == len(kinds):
            raise reasons[0] if reasons else NotApplicableError("no statements")
        return answer

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
            restored = (
                self._run_for_a_while if self.case["after_restore_source"] == "INFINITE" else self._run_to_the_end
            )
            self._clock = _NextDay
            after = restored(savepoint)
            return self._compare(after, ("expected_after_strings",))

    def _check_failing(self, step: dict[str, Any]) -> str:
        try:
            session = self.session()
            inserts = [one for text in _texts(step) for one in self._inserts_of_text(text, session)]
            self._start(inserts, session, True, False, None)[0].wait()
        except (PenstockError, SqlParserError):
            return ""
        return f"no error: {step['message'][:100]!r}"

    def _run(self, with_after: bool, waits: bool, savepoint: str | None = None) -> dict[str, list[str]]:
        session = self.session()
        job, rows = self._start(self.inserts(session), session, with_after, waits, savepoint)
        job.wait()
        return rows

    def _run_in_batch(self) -> dict[str, list[str]]:
        """What the program gives as Spark SQL, for those that Flink does not run as streams."""
        session = self.session()
        reader = partial(self._reader, with_after=True, waits=False)
        found: dict[str, list[str]] = {}
        for insert in self.inserts(session):
            text = row_text(insert.types)
            assert isinstance(insert.plan, logical.Write)
            rows = compute_rows(insert.plan.input, reader)
            found.setdefault(insert.plan.path[-1], []).extend(text("+I", values) for values in rows)
        return found

    def _run_to_the_end(self, savepoint: str) -> dict[str, list[str]]:
        return self._run(with_after=True, waits=False, savepoint=savepoint)

    def _run_for_a_while(self, savepoint: str) -> dict[str, list[str]]:
        session = self.session()
        job, rows = self._start(self.inserts(session), session, True, True, savepoint)
        self._await(job, rows, ("expected_after_strings",))
        job.cancel().result(PATIENCE_S)
        return rows

    def _await(self, job: Any, rows: dict[str, list[str]], parts: Sequence[str]) -> None:
        """Wait until the expected rows are there, `PATIENCE_S` at most."""
        deadline = time.monotonic() + PATIENCE_S
        while self._compare(rows, parts) and time.monotonic() < deadline:
            if job.get_job_execution_result().done():
                job.wait()
            time.sleep(0.01)

    def _run_until_stopped(self, folder: str) -> tuple[dict[str, list[str]], str]:
        session = self.session()
        job, rows = self._start(self.inserts(session), session, False, True, None)
        self._await(job, rows, ("expected_before_strings",))
        time.sleep(0.05)
        path = job.stop_with_savepoint(False, folder).result(PATIENCE_S)
        return rows, str(path)

    def _start(
        self,
        inserts: list[Insert],
        session: TableSession,
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
        options = session.config.to_map()
        zone = parse_zone(session.config.get_local_timezone())
        planner = StreamPlanner(
            environment.add,
            lambda scan: self._reader(scan, with_after, waits),
            StreamSession(zone, session.config.read(LEGACY_CAST) == "ENABLED", call_settings(options)),
            session.manager.calls(),
            lookups=Lookups(lambda scan, key: self._lookup(scan, key, with_after), options),
            options=plan_options(options),
        )
        rows: dict[str, list[str]] = {}
        for insert in inserts:
            self._collect(environment, planner, insert, rows)
        with mock.patch.object(local_job, "SystemClock", self._clock):
            return environment.execute_async(self.case["uid"]), rows

    def _collect(self, environment: Any, planner: StreamPlanner, insert: Insert, rows: dict[str, list[str]]) -> None:
        name = "" if insert.sink is None else insert.sink["name"]
        arrived = rows.setdefault(name, [])
        records, text = CollectedRecords(), row_text(insert.types)

        def take(subtask: int, frame: bytes) -> None:
            arrived.extend(text(SHORT[kind], values) for kind, values in records.take(frame))

        sink = CollectSink(True)
        if insert.sink is None:
            upstreams = planner.rows(insert.plan, ALL, True, "collect")
        else:
            assert isinstance(insert.plan, logical.Write)
            upstreams = planner.written(insert.plan, writer_of(insert.sink, sink))
        operator = lambda: SinkOperator(sink)  # noqa: E731 - each task makes its own
        environment.add(
            Transformation("Sink", operator, upstreams, name=name, is_stateful=True, sink=sink, client_handler=take)
        )

    def _source(self, scan: logical.Scan, with_after: bool, waits: bool) -> Source:
        return Source(self.sources[scan.path[2]], with_after, waits, self.restores)

    def _lookup(self, scan: logical.Scan, key: Sequence[int], with_after: bool) -> TableLookup:
        return self._source(scan, with_after, False).lookup(scan, key)

    def _reader(self, scan: logical.Scan, with_after: bool, waits: bool) -> TableReader:
        return self._source(scan, with_after, waits).reader(scan)

    # --- comparing ---------------------------------------------------------------------------------------------------

    def _compare(self, rows: dict[str, list[str]], parts: Sequence[str]) -> str:
        for name, sink in self.sinks.items():
            expected, found = [row for part in parts for row in sink[part] or []], rows.get(name, [])
            if sink["compare"] == "materialized":
                whole = None if self.restores else sink["expected_materialized_strings"]
                wrong = (
                    _difference(fold_changes(sink, whole or expected), fold_changes(sink, found))
                    if whole or expected
                    else ""
                )
            else:
                wrong = _difference(Counter(expected), Counter(found))
                if wrong and self.is_bundled:
                    wrong = _difference(fold_changes(sink, expected), fold_changes(sink, found))
                    self.is_same_table_alone = not wrong
            if wrong:
                return f"{name}: {wrong}"
        return ""

    def _is_flinks_in_one_go(self, rows: dict[str, list[str]]) -> bool:
        """Whether it is what Flink gives where it reads all rows in one go, and gives something else than in two."""
        flinks = ((self.case.get("flink_2_3_one_go") or {}).get("streaming") or {}).get("sinks") or {}
        return all(_is_same(flinks.get(name, {}), sink, rows.get(name, [])) for name, sink in self.sinks.items())


def _texts(step: dict[str, Any]) -> list[str]:
    """The statements of a step: one, or those of a set."""
    found = step.get("sql") or step.get("statements") or []
    return [found] if isinstance(found, str) else list(found)


def _difference(wanted: Counter[str], found: Counter[str]) -> str:
    """How rows differ, or nothing."""
    missing, extra = sorted((wanted - found).elements()), sorted((found - wanted).elements())
    return f"missing {missing[:6]}, extra {extra[:6]}" if missing or extra or wanted != found else ""


def _is_same(flinks: dict[str, Any], sink: dict[str, Any], rows: Sequence[str]) -> bool:
    """Whether rows are those that Flink gives in one go, or, where only its table is as expected, stand for this."""
    raw = flinks.get("raw")
    if raw is not None and Counter(raw) == Counter(rows):
        return True
    return bool(flinks.get("net_equal")) and fold_changes(sink, rows) == Counter(flinks["materialized"])


def outcome(program: Program) -> str:
    """What is wrong, or nothing. Raises `NotApplicableError`."""
    case = program.case
    if case["needs_java_udf"] or case["functions"]:
        raise NotApplicableError("functions in Java")
    if program.restores and not case["restore"]:
        raise NotApplicableError("no restore")
    try:
        return program.check()
    except (PenstockError, SqlParserError) as error:
        in_stream = (case.get("flink_2_3_one_go") or {}).get("streaming") or {}
        if isinstance(error, ValidationError) and "No match found for function" in (in_stream.get("error") or ""):
            raise NotApplicableError("a function that Flink does not find either") from error
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
    right = total = by_table = 0
    skipped: Counter[str] = Counter()
    for case in json.loads(file.read_text()):
        if only not in case["uid"]:
            continue
        program = Program(case, restores)
        try:
            wrong = outcome(program)
        except NotApplicableError as error:
            skipped[str(error)] += 1
            continue
        total += 1
        right += not wrong
        by_table += not wrong and program.is_same_table_alone
        if wrong and not quiet:
            print(f"{case['uid']}\n    {wrong[:500]}")
    for reason, count in skipped.items():
        print(f"{count} do not apply: {reason}")
    print(f"{right} of {total} programs give what Flink gives; {by_table} of them another changelog of the same table")


if __name__ == "__main__":
    main()
