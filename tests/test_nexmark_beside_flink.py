"""Nexmark in SQL as users run it, and beside others: with a program that answers as Flink's does, so none is needed."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pytest
from benchmarks import builds
from benchmarks.nexmark_sql import query_process
from benchmarks.nexmark_sql.beside_build import NexmarkSubject, compare_queries
from benchmarks.nexmark_sql.beside_flink import BesideFlink
from benchmarks.nexmark_sql.beside_own import compare_regimes
from benchmarks.nexmark_sql.cell_tables import write_lines, write_tables
from benchmarks.nexmark_sql.cells import Cell, CellFile, Side, take_medians
from benchmarks.nexmark_sql.events import events, generate_events
from benchmarks.nexmark_sql.flink_process import FlinkInstall, FlinkProcess, statements, write_events
from benchmarks.nexmark_sql.kept import Kept
from benchmarks.nexmark_sql.latency import Latencies, with_latency_sink
from benchmarks.nexmark_sql.queries import NexmarkQuery, query
from benchmarks.nexmark_sql.query_process import Memory, PenstockProcess, QueryProcess, RefusedError, Run
from benchmarks.nexmark_sql.regimes import Regime, find_regimes, takes_regime
from benchmarks.nexmark_sql.running import Runs
from click.testing import CliRunner

HEAP, ROCKSDB = Regime("heap", "1s"), Regime("rocksdb", "1s")
OURS = Side(Run(0.5, 0.25, 2_000_000, 2, 500_000), 0.1, Memory(1_000_000, 500_000))
FLINK = Side(Run(1.0, 1.0, 4_000_000, 0, 0), 0.2, Memory(3_000_000, 700_000))
EVENTS_TABLE = """
CREATE TABLE datagen (
    event_type INT,
    person ROW<id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR,
        `dateTime` TIMESTAMP(3), extra VARCHAR>,
    auction ROW<id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
        `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR>,
    bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3),
        extra VARCHAR>,
    `dateTime` AS CASE event_type WHEN 0 THEN person.`dateTime` WHEN 1 THEN auction.`dateTime` ELSE bid.`dateTime` END,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'events.num' = '${EVENTS_NUM}', 'first-event.rate' = '${TPS}',
        'next-event.rate' = '${TPS}');
"""
BIDS = """
CREATE VIEW bid AS SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, `dateTime`, bid.extra
FROM ${NEXMARK_TABLE} WHERE event_type = 2;
"""
LAST_BIDS = """
CREATE TABLE s (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3),
    extra VARCHAR) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rank_number FROM bid)
WHERE rank_number <= 1;
"""
COUNTS = """
CREATE TABLE s (auction BIGINT, bids BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT auction, COUNT(*) FROM bid GROUP BY auction;
"""
REFUSED = """
CREATE TABLE s (auction BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT nothing FROM bid;
"""
#: Answers as Flink's program does, and ends where a query is to run over so many events.
ANSWERS = """
import json, sys
sys.stderr.write("java.lang.OutOfMemoryError: Java heap space")
sys.stderr.flush()
print("a line of the program's own")
print("nexmark ready", flush=True)
for line in sys.stdin:
    command, *arguments = line.split()
    if arguments[0] == sys.argv[1]:
        sys.exit(1)
    run = {"wall_s": 1.0, "cpu_s": 2.0, "checkpoints": 3, "checkpoint_bytes": 4_000_000, "latencies_ms": [5, 6]}
    print("nexmark", json.dumps(run) if command == "run" else "7", flush=True)
"""


@pytest.fixture
def nexmark(tmp_path: Path) -> Path:
    """The benchmark's files, as far as they are needed here."""
    folder = tmp_path / "nexmark"
    folder.mkdir()
    files = {"ddl_gen": EVENTS_TABLE, "ddl_views": BIDS, "q6": REFUSED, "q17": COUNTS, "q18": LAST_BIDS}
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text)
    return folder


class AnsweringInstall(FlinkInstall):
    """Starts a program that answers as Flink's does. `heap`: over so many events it ends amid a run."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", ANSWERS, self.heap]


def beside_answers(nexmark: Path, tmp_path: Path, ends_at: str = "", with_memory: bool = False) -> BesideFlink:
    """The comparison, with a program instead of Flink."""
    return BesideFlink(AnsweringInstall(Path(), ends_at), nexmark, 2_000, 2, with_memory, tmp_path)


# --- what Flink is given ----------------------------------------------------------------------------------------------


def test_the_parts_of_a_row_that_is_null_are_null_in_the_file(tmp_path: Path) -> None:
    """Flink's reader asks a part alone, and a part below NULL may hold anything."""
    parts = pa.StructArray.from_arrays([pa.array([1, 2])], ["id"], mask=pa.array([False, True]))
    write_events(pa.table({"bid": parts}).to_batches(), tmp_path / "events.arrow")
    read = pa.ipc.open_file(tmp_path / "events.arrow").read_all()["bid"].combine_chunks()
    assert read.to_pylist() == [{"id": 1}, None]
    assert read.field(0).to_pylist() == [1, None]


def test_events_that_pass_are_those_that_are_held() -> None:
    """A longer stream begins with a shorter one, also over the end of a chunk."""
    passing = pa.Table.from_batches(generate_events(20_000, 500))
    assert passing.equals(events(20_000, 500).combine_chunks().select(passing.schema.names))
    assert events(17_000, 500).to_pylist() == passing.slice(0, 17_000).to_pylist()


def test_flink_gets_the_statements_but_for_where_events_come_from(tmp_path: Path) -> None:
    """Options of files that Penstock does not know go to Flink as they are."""
    sink = "CREATE TABLE s (a BIGINT) WITH ('connector' = 'filesystem', 'sink.partition-commit.delay' = '1min')"
    (tmp_path / "ddl_gen.sql").write_text("CREATE TABLE datagen (a BIGINT) WITH ('connector' = 'nexmark');")
    (tmp_path / "ddl_views.sql").write_text("CREATE VIEW bid AS SELECT a FROM ${NEXMARK_TABLE};")
    (tmp_path / "q0.sql").write_text(f"{sink}; INSERT INTO s SELECT a FROM bid;")
    asked = query(tmp_path, "q0", tmp_path)
    source, view, _, given, insert = statements(tmp_path, asked, tmp_path / "e", 10, 1)
    assert source == f"CREATE TABLE datagen (a BIGINT) WITH ('connector' = 'nexmark-arrow', 'path' = '{tmp_path}/e')"
    assert (view, given, insert) == (
        "CREATE VIEW bid AS SELECT a FROM datagen",
        sink,
        "INSERT INTO s SELECT a FROM bid",
    )
    assert asked.own_sink == "CREATE TABLE s (a BIGINT) WITH ('connector' = 'filesystem')"


def test_without_flink_it_says_how_to_install_it(tmp_path: Path) -> None:
    """One command."""
    with pytest.raises(FileNotFoundError, match=r"python3 -m venv .* && .*/bin/pip install apache-flink"):
        FlinkInstall(tmp_path / "bin" / "python", "1g").command()


# --- regimes ----------------------------------------------------------------------------------------------------------

REGIMES = {
    "heap without checkpoints": ([], Regime()),
    "RocksDB": (["--backend", "rocksdb", "--checkpoints", "10s"], Regime("rocksdb", "10s")),
    "no mini-batch": (["--no-mini-batch"], Regime(mini_batch=False)),
    "at a rate": (["--rate", "2000"], Regime(rate=2_000)),
}


@pytest.mark.parametrize(("arguments", "regime"), REGIMES.values(), ids=list(REGIMES))
def test_both_sides_get_the_options_of_the_command_line(
    arguments: list[str], regime: Regime, nexmark: Path, tmp_path: Path
) -> None:
    """Penstock's options are among Flink's, with the same values."""
    parsed: list[Regime] = []

    @click.command()
    @takes_regime
    def command(regime: Regime) -> None:
        parsed.append(regime)

    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert parsed == [regime]
    runs = Runs(nexmark, 10, 10_000).with_regime(regime, tmp_path / "checkpoints")
    asked = query(nexmark, "q17", tmp_path)
    assert runs.pace(asked).per_second == regime.rate
    ours = runs.environment(asked, asked.own_sink, Kept()).get_config()
    with FlinkProcess(AnsweringInstall(Path(), ""), [], tmp_path, regime):
        lines = (tmp_path / "settings").read_text().splitlines()
    flinks = dict(line.split(": ", 1) for line in lines)
    keys = ["state.backend.type", "execution.checkpointing.interval", "execution.checkpointing.dir"]
    keys += ["table.exec.mini-batch.enabled", "table.exec.mini-batch.size", "table.exec.mini-batch.allow-latency"]
    assert [ours.get(key, "unset") for key in keys] == [flinks.get(key, "unset") for key in keys]
    assert flinks["state.backend.type"] == ("rocksdb" if regime.backend == "rocksdb" else "hashmap")
    assert flinks.get("execution.checkpointing.interval") == ("10 s" if regime.checkpoints == "10s" else None)
    assert ("table.exec.mini-batch.enabled" in flinks) == regime.mini_batch


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_run_tells_of_its_checkpoints_and_of_its_memory(backend: str, nexmark: Path, tmp_path: Path) -> None:
    """The last checkpoint is behind the last event, however short the run."""
    asked = query(nexmark, "q18", tmp_path)
    runs = Runs(nexmark, 1_000, 10_000, waits_ms=0)
    run = runs.with_regime(Regime(backend, "10s"), tmp_path / "checkpoints").run(asked)
    assert run.checkpoints == 1
    # It has some hundred rows, each with a text.
    assert 10_000 < run.checkpoint_bytes < 3_000_000
    assert run.peak_bytes > 50_000_000
    assert runs.run(asked).checkpoints == 0


def test_latencies_are_those_of_rows_that_come_out_behind_the_first_second(nexmark: Path, tmp_path: Path) -> None:
    """Of updated rows the new one counts."""
    latencies = Latencies()
    assert latencies.percentiles() is None
    latencies.begin(10_000)
    latencies.add(np.array([999, 1_000, 1_010]), 11_030)
    assert latencies.percentiles() == (20, 20)
    asked = query(nexmark, "q18", tmp_path)
    regime = Regime(rate=4_000, mini_batch=False)
    run = Runs(nexmark, 6_000, 4_000, waits_ms=0).with_regime(regime, tmp_path).run(with_latency_sink(asked))
    assert run.latencies_ms is not None
    assert 0 <= run.latencies_ms[0] <= run.latencies_ms[1] < 60_000
    counts = query(nexmark, "q17", tmp_path)
    assert with_latency_sink(counts) == counts


def test_regimes_are_those_of_users() -> None:
    """At the rate and the checkpoints that are asked for."""
    titles = [regime.title for regime in find_regimes(Regime())]
    assert titles == ["heap, checkpoints 1s", "RocksDB, checkpoints 1s", "heap, no checkpoints, no mini-batch"]
    assert [regime.rate for regime in find_regimes(Regime(rate=5))] == [5, 5, 5]
    assert find_regimes(Regime(checkpoints="10s"))[1].title == "RocksDB, checkpoints 10s"


# --- cells ------------------------------------------------------------------------------------------------------------


def test_both_sides_are_shown_and_a_query_that_is_refused_does_not_count() -> None:
    """The ratio is that of times; above 1 Penstock is faster."""
    cells = [
        Cell("q0", HEAP, 1_000_000, OURS, FLINK),
        Cell("q6", HEAP, 1_000_000, "refused: a", "refused: b"),
        Cell("q13", HEAP, 1_000_000, OURS, "did not survive: b"),
    ]
    shown = list(write_tables(iter(cells), with_memory=True))
    assert shown[4] == (
        "| q0 | 2,000,000 | 1,000,000 | 2.00 | 2.00 | 0.25 / 1.00 | 4.00 | 2 / 4 | 2 / 0 | 0.5 / none | 1.0 / 3.0 "
        "| 0.5 / 0.7 |"
    )
    assert {line.count("|") for line in shown[2:7]} == {13}
    assert shown[6].startswith("| q13 | 2,000,000 | did not survive: b |")
    assert shown[-2:] == list(write_lines(iter(cells), with_memory=True))[-2:]
    assert shown[-2] == "1 of 1 cells at least as fast as Flink, ratio: median 2.00, of CPU 4.00"
    assert shown[-1] == "without Flink: q6 (heap, checkpoints 1s), q13 (heap, checkpoints 1s)"


def test_ratios_of_more_regimes_are_side_by_side() -> None:
    """With the median of all."""
    cells = [Cell(name, regime, 10, OURS, FLINK) for regime in (HEAP, ROCKSDB) for name in ("q4", "q5")]
    cells[-1] = Cell("q5", ROCKSDB, 10, OURS, "did not survive: memory")
    shown = list(write_tables(iter(cells), with_memory=False))
    begin = shown.index("| query | heap, checkpoints 1s | RocksDB, checkpoints 1s |")
    assert shown[begin + 2 : begin + 4] == ["| q4 | 2.00 / 4.00 | 2.00 / 4.00 |", "| q5 | 2.00 / 4.00 | no Flink |"]
    assert "3 of 3 cells at least as fast as Flink, ratio: median 2.00, of CPU 4.00" in shown


def test_at_a_rate_processor_time_and_latency_are_shown() -> None:
    """Elapsed time is that of the events."""
    sides = [Side(Run(10.0, 1.0, 0, latencies_ms=(3, 40)), 0.1), Side(Run(10.0, 4.0, 0), 0.1)]
    cells = [Cell("q18", Regime(rate=1_000), 10_000, *sides)]
    shown = list(write_tables(iter(cells), with_memory=False))
    assert shown[4] == "| q18 | 100.00 / 400.00 | 4.00 | 10.0% / 40.0% | 3 / 40 |  | 0 / 0 |"
    assert shown[-1] == "ratio of CPU: median 4.00"


def test_medians_of_runs_count_and_the_highest_peak() -> None:
    """Each figure for itself."""
    runs = [Run(3, 1, 10, 1, 5, (1, 9)), Run(1, 3, 30, 2, 7, (3, 7)), Run(2, 2, 20, 3, 6, (2, 8))]
    assert take_medians(runs) == Run(2, 2, 30, 2, 6, (2, 8))


def test_a_run_goes_on_with_the_cells_that_are_missing(tmp_path: Path) -> None:
    """A cell is known by its query, its regime and its events."""
    path = tmp_path / "cells.json"
    cells = [
        Cell("q4", HEAP, 10, OURS, FLINK),
        Cell("q4", ROCKSDB, 10, Side(Run(1, 2, latencies_ms=(3, 4)), 5), "did not survive: memory"),
    ]
    for cell in cells:
        CellFile(path).add(cell)
    measured: list[tuple[str, Regime]] = []

    class Measuring(BesideFlink):
        def measure(self, name: str, regime: Regime) -> Cell:
            measured.append((name, regime))
            return Cell(name, regime, self.events, OURS, FLINK)

    beside = Measuring(FlinkInstall(tmp_path, "1g"), tmp_path, 10, 1, False, tmp_path)
    again = list(beside.measure_all(["q4", "q5"], [HEAP, ROCKSDB], CellFile(path)))
    assert measured == [("q5", HEAP), ("q5", ROCKSDB)]
    assert [again[0], again[2]] == cells
    assert len(json.loads(path.read_text())) == 4
    assert CellFile(path).find("q4", HEAP, 11) is None


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_query_runs_beside_flink(nexmark: Path, tmp_path: Path) -> None:
    """Each side in a process of its own, with its memory and its checkpoints."""
    cell = beside_answers(nexmark, tmp_path, with_memory=True).measure("q18", ROCKSDB)
    assert cell.sides is not None
    ours, flink = cell.sides
    assert (flink.run.wall_s, flink.run.checkpoints, flink.run.latencies_ms) == (1.0, 3, (5, 6))
    assert ours.run.checkpoints == 1
    assert ours.run.peak_bytes > flink.run.peak_bytes > 1_000_000
    assert ours.memory is not None
    assert ours.memory.savepoint > 30_000
    assert flink.memory == (7, 0)


@pytest.mark.slow
def test_a_side_that_ends_amid_a_run_is_marked_and_the_other_runs_alone(nexmark: Path, tmp_path: Path) -> None:
    """The last that it said is shown."""
    cell = beside_answers(nexmark, tmp_path, ends_at="2000").measure("q17", HEAP)
    assert cell.flink == "did not survive: the process ended: java.lang.OutOfMemoryError: Java heap space"
    assert isinstance(cell.ours, Side)
    refused = beside_answers(nexmark, tmp_path).measure("q6", HEAP)
    assert str(refused.ours).startswith("refused: UnknownNameError: Column 'nothing'")
    assert isinstance(refused.flink, Side)


def test_a_process_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    """It is given up on before it was ready, too."""
    process = QueryProcess([sys.executable, "-c", "input()"], tmp_path / "log", patience_s=0.01)
    with pytest.raises(RefusedError, match=r"no answer within 0\.01 s"), process:
        pass


@pytest.mark.slow
def test_a_process_runs_at_a_rate_and_tells_latencies(nexmark: Path, tmp_path: Path) -> None:
    """Its first runs, which warm it up, are as fast as they can."""
    with PenstockProcess(nexmark, "q18", 6_000, Regime(rate=4_000), tmp_path) as process:
        assert process.run(100).latencies_ms is None
        assert process.run(6_000, 4_000).latencies_ms is not None


@pytest.mark.slow
def test_regimes_are_compared_with_the_heap_without_checkpoints(nexmark: Path) -> None:
    """A query that is refused has a row, too."""
    lines = list(compare_regimes(nexmark, ["q17", "q6"], Regime(), 2_000, 1))
    columns = lines[2].split(" | ")
    assert len(columns) == 14
    assert [columns[6], columns[12]] == ["1", "1"]  # checkpoints
    assert lines[3].startswith("| q6 | refused: ")
    assert lines[-1].startswith("RocksDB, checkpoints 1s: by processor time ")


@pytest.mark.slow
def test_queries_are_compared_between_two_builds(nexmark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of the same tree; both make the same events."""
    monkeypatch.setattr(builds, "checkout", lambda base: nullcontext(builds.ROOT))
    lines = list(compare_queries("base", nexmark, ["q17"], Regime(), 2_000, 1))
    assert lines[0] == "heap, no checkpoints, 2,000 events, 1 pairs; base's processor time over this build's:"
    assert lines[4].startswith("| q17 | ")
    assert lines[-1].startswith("ratio: median ")
    with pytest.raises(RuntimeError, match="q6, heap, no checkpoints: UnknownNameError"):
        list(compare_queries("base", nexmark, ["q6"], Regime(), 2_000, 1))
    subject = NexmarkSubject(nexmark, "q17", 10, Regime())
    subject.samples.add("the events of another generator")
    with pytest.raises(RuntimeError, match="the builds make different events"), subject.start(builds.ROOT):
        pass


def test_server_of_an_older_revision_tells_times_alone(
    nexmark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs have wall time and processor time, and no more."""
    from benchmarks.nexmark_sql import serving

    class Older(Runs):
        run = None  # type: ignore[assignment]

        def seconds(self, asked: NexmarkQuery) -> tuple[float, float]:
            return 1.5, 0.5

        def warmed(self, asked: NexmarkQuery) -> tuple[float, float]:
            return 0.1, 0.1

    monkeypatch.setattr(serving, "Runs", Older)
    monkeypatch.setattr(sys, "stdin", iter(["run 10 0\n", "sample\n"]))
    settings = {"folder": str(nexmark), "name": "q17", "events": 10, "rate": 10, "scratch": str(tmp_path)}
    settings |= {"mini_batch": True, "options": {}, "with_latency": False, "source": str(query_process.ROOT / "src")}
    ready, run, sample = serving.serve(settings)
    assert ready == "ready"
    assert Run(**json.loads(run)) == Run(1.5, 0.5)
    assert len(json.loads(sample)) == 100
