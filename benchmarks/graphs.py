"""PageRank and connected components of power-law graphs: `python -m benchmarks.graphs --edges 100000 --edges 1000000`.

On the same Spark: GraphX, which is what GraphFrames runs for PageRank, and joins of data frames
by hand; in this process SciPy on one core, as what a machine can do. All read one Parquet file (GraphX the same, as
text), and end when the number of results is known, and their sum where that is one query. The graphs are those of
Graph500 (R-MAT). Sides take turns; of each the best run counts.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from rich.console import Console
from rich.table import Table

from benchmarks import plots
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource
from penstock.formats.parquet import ParquetFormat
from penstock.gelly import Graph
from penstock.gelly.library import ConnectedComponents, PageRank

SUPERSTEPS = 20
DAMPING = 0.85
COMPONENT_SUPERSTEPS = 100
#: The shares of R-MAT, added up: 0.57, 0.19, 0.19, and the rest.
_QUADRANTS = (0.57, 0.76, 0.95)
#: (how many vertices, a sum over all results)
Answer = tuple[int, float]


def written(edges: int, path: Path) -> None:
    """A graph with about a sixteenth as many vertices as edges, as a Parquet file of `src` and `dst`.

    By R-MAT, as Graph500 has it: each bit of both ends is drawn together, so that degrees follow a power law.
    """
    chance = np.random.default_rng(1)
    scale = max(4, int(edges // 16).bit_length() - 1)
    ends = np.zeros((2, edges), np.int64)
    for _ in range(scale):
        drawn = chance.random(edges)
        ends[0] = 2 * ends[0] + (drawn >= _QUADRANTS[1])
        ends[1] = 2 * ends[1] + ((drawn >= _QUADRANTS[0]) & (drawn < _QUADRANTS[1]) | (drawn >= _QUADRANTS[2]))
    names = chance.permutation(1 << scale)
    table = pa.table({"src": names[ends[0]], "dst": names[ends[1]]})
    pq.write_table(table, path, row_group_size=max(1, edges // 8))
    csv.write_csv(table, path.with_suffix(".txt"), csv.WriteOptions(include_header=False, delimiter=" "))


# --- the sides --------------------------------------------------------------------------------------------------------


def penstock(path: Path, algorithm: str, target: str, parallelism: int) -> Answer:
    """Penstock, on Spark or in this process."""
    configuration = Configuration().set_string("execution.runtime-mode", "BATCH")
    configuration.set_string("execution.target", target)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)
    source = FileSource.for_bulk_file_format(ParquetFormat(as_columns=True), str(path)).build()
    edges = env.from_source(source, WatermarkStrategy.no_watermarks(), "edges")
    graph = Graph.from_tuple2_data_stream(edges, vertex_value_initializer=_itself)
    ranks = algorithm == "pagerank"
    chosen = PageRank(DAMPING, SUPERSTEPS) if ranks else ConnectedComponents(COMPONENT_SUPERSTEPS)
    with graph.run(chosen).map_batches(_summed).execute_and_collect() as parts:
        counts, sums = zip(*parts, strict=True)
    return sum(counts), sum(sums)


def _itself(vertex_id: Any) -> Any:
    return vertex_id


def _summed(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch.column(1).to_numpy(zero_copy_only=False)
    return pa.RecordBatch.from_pydict({"count": [len(values)], "sum": [float(values.sum())]})


def graphx(spark: Any, path: Path, algorithm: str) -> Answer:
    """GraphX; it reads the edges as text. The sum is not asked for."""
    jvm, level = spark._jvm, spark._jvm.org.apache.spark.storage.StorageLevel.MEMORY_ONLY()
    text = str(path.with_suffix(".txt"))
    load = jvm.org.apache.spark.graphx.GraphLoader.edgeListFile
    context = spark.sparkContext
    graph = load(context._jsc.sc(), text, False, context.defaultParallelism, level, level)
    tag = jvm.scala.reflect.ClassTag.Int()
    if algorithm == "pagerank":
        run = jvm.org.apache.spark.graphx.lib.PageRank.run(graph, SUPERSTEPS, 1 - DAMPING, tag, tag)
    else:
        run = jvm.org.apache.spark.graphx.lib.ConnectedComponents.run(graph, tag, tag)
    count = run.vertices().count()
    for kept in (run, graph):
        kept.unpersist(False)
    return count, 0.0


def joins(spark: Any, path: Path, algorithm: str) -> Answer:
    """Joins of data frames as one writes them by hand; what a superstep gives is kept, and its plan cut off."""
    from pyspark.sql import functions as sql

    edges = spark.read.parquet(str(path))
    vertices = edges.select(sql.col("src").alias("id")).union(edges.select("dst")).distinct().cache()
    if algorithm == "pagerank":
        frame = _ranks_by_joins(edges, vertices, sql)
        column = "rank"
    else:
        frame = _components_by_joins(edges, vertices, sql)
        column = "component"
    (row,) = frame.agg(sql.count("*"), sql.sum(column)).collect()
    spark.catalog.clearCache()
    return row[0], float(row[1])


def _ranks_by_joins(edges: Any, vertices: Any, sql: Any) -> Any:
    size = vertices.count()
    links = edges.join(edges.groupBy("src").agg(sql.count("*").alias("degree")), "src").cache()
    sources = links.select(sql.col("src").alias("id")).distinct().cache()
    ranks = vertices.withColumn("rank", sql.lit(1 / size)).localCheckpoint()
    for _ in range(SUPERSTEPS):
        sinks = ranks.join(sources, "id", "left_anti").agg(sql.sum("rank")).collect()[0][0] or 0.0
        shares = links.join(ranks, links.src == ranks.id).select(
            sql.col("dst").alias("id"), sql.expr("rank / degree s")
        )
        came = shares.groupBy("id").agg(sql.sum("s").alias("s"))
        base = (1 - DAMPING + DAMPING * sinks) / size
        ranks = (
            vertices.join(came, "id", "left")
            .select("id", (sql.lit(base) + DAMPING * sql.coalesce("s", sql.lit(0.0))).alias("rank"))
            .localCheckpoint()
        )
    return ranks


def _components_by_joins(edges: Any, vertices: Any, sql: Any) -> Any:
    both = edges.union(edges.select("dst", "src")).cache()
    found = vertices.withColumn("component", sql.col("id")).localCheckpoint()
    changed = 1
    while changed:
        came = both.join(found, both.src == found.id).groupBy("dst").agg(sql.min("component").alias("least"))
        least = sql.least("component", sql.coalesce("least", "component"))
        new = found.join(came, found.id == came.dst, "left").select(
            "id", least.alias("component"), (least < sql.col("component")).alias("changed")
        )
        new = new.localCheckpoint()
        changed = new.where("changed").count()
        found = new.select("id", "component")
    return found


def scipy(path: Path, algorithm: str) -> Answer:
    """SciPy's sparse matrices, on one core."""
    coo_matrix = import_module("scipy.sparse").coo_matrix
    csgraph = import_module("scipy.sparse.csgraph")
    table = pq.read_table(path)
    ends = np.concatenate([table["src"].to_numpy(), table["dst"].to_numpy()])
    ids, codes = np.unique(ends, return_inverse=True)
    sources, targets = codes[: table.num_rows], codes[table.num_rows :]
    size = len(ids)
    if algorithm != "pagerank":
        matrix = coo_matrix((np.ones(len(sources), bool), (sources, targets)), (size, size))
        number, labels = csgraph.connected_components(matrix, directed=False)
        least = np.full(number, np.iinfo(np.int64).max)
        np.minimum.at(least, labels, ids)
        return size, float(least[labels].sum())
    degrees = np.bincount(sources, minlength=size)
    matrix = coo_matrix((1 / degrees[sources], (targets, sources)), (size, size)).tocsr()
    ranks = np.full(size, 1 / size)
    for _ in range(SUPERSTEPS):
        sinks = ranks[degrees == 0].sum()
        ranks = (1 - DAMPING + DAMPING * sinks) / size + DAMPING * (matrix @ ranks)
    return size, float(ranks.sum())


# --- measuring --------------------------------------------------------------------------------------------------------


def session(parallelism: int, memory: str) -> Any:
    """A Spark session that all sides share."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{parallelism}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", memory).config("spark.sql.shuffle.partitions", str(2 * parallelism))
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    return builder.getOrCreate()


def measured(run: Callable[[], Answer], wanted: Answer | None, console: Console) -> tuple[float | None, Answer | None]:
    """Seconds and the answer; None if it fails, and a line that says why."""
    begun = time.monotonic()
    try:
        answer = run()
    except Exception as error:  # noqa: BLE001 - the other sides go on
        console.print(f"failed: {type(error).__name__}: {str(error)[:300]}")
        return None, wanted
    seconds = time.monotonic() - begun
    if wanted is not None and not _same(answer, wanted):
        console.print(f"[red]another answer: {answer}, not {wanted}[/red]")
    return seconds, wanted or answer


def _same(answer: Answer, wanted: Answer) -> bool:
    """Whether the numbers are equal, and the sums where both are known."""
    close = abs(answer[1] - wanted[1]) <= 1e-3 * abs(wanted[1])
    return answer[0] == wanted[0] and (close or 0.0 in (answer[1], wanted[1]))


@click.command()
@click.option("--edges", multiple=True, type=int, default=(100_000, 1_000_000), help="sizes of graphs")
@click.option("--side", "chosen", multiple=True, help="only these sides")
@click.option("--runs", default=2, show_default=True, help="of each side; the best counts")
@click.option("--parallelism", default=2, show_default=True)
@click.option("--memory", default="4g", show_default=True, help="of Spark's process")
@click.option("--plot", type=click.Path(path_type=Path), help="where to draw the curves: .svg or .png")
def main(
    edges: tuple[int, ...], chosen: tuple[str, ...], runs: int, parallelism: int, memory: str, plot: Path | None
) -> None:
    """Measure, and print seconds and ratios."""
    if plot is not None:
        plots.check()
    console = Console(width=140)
    spark = session(parallelism, memory)
    spark.sparkContext.setLogLevel("ERROR")
    sides: dict[str, Callable[[Path, str], Answer]] = {
        "SciPy, one core": scipy,
        "Penstock on Spark": lambda path, algorithm: penstock(path, algorithm, "spark", parallelism),
        "Penstock, local": lambda path, algorithm: penstock(path, algorithm, "local", parallelism),
        "GraphX": lambda path, algorithm: graphx(spark, path, algorithm),
        "joins by hand": lambda path, algorithm: joins(spark, path, algorithm),
    }
    sides = {name: run for name, run in sides.items() if not chosen or name in chosen}
    found: dict[str, dict[int, dict[str, float]]] = {"pagerank": {}, "components": {}}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for size in edges:
            path = directory / f"{size}.parquet"
            written(size, path)
            for algorithm, by_size in found.items():
                best = by_size[size] = {}
                wanted: Answer | None = None
                for _ in range(runs):
                    for name, run in sides.items():
                        seconds, answer = measured(partial(run, path, algorithm), wanted, console)
                        wanted = wanted or answer
                        if seconds is not None:
                            best[name] = min(seconds, best.get(name, seconds))
                        console.print(f"{algorithm}, {size:,} edges, {name}: {seconds and f'{seconds:.2f} s'}")
    for algorithm, by_size in found.items():
        console.print(_table(algorithm, by_size, list(sides)))
    if plot is not None:
        plots.graph_curves(found, plot)


def _table(algorithm: str, by_size: dict[int, dict[str, float]], sides: list[str]) -> Table:
    table = Table(title=f"{algorithm}: seconds, and in brackets how many times as long as Penstock on Spark")
    table.add_column("edges", justify="right")
    for name in sides:
        table.add_column(name, justify="right")
    for size, best in by_size.items():
        ours = best.get("Penstock on Spark")
        cells = []
        for name in sides:
            seconds = best.get(name)
            ratio = f" ({seconds / ours:.1f})" if seconds and ours else ""
            cells.append("-" if seconds is None else f"{seconds:.2f}{ratio}")
        table.add_row(f"{size:,}", *cells)
    return table


if __name__ == "__main__":
    main()
