"""The sink of OpenSearch beside a bare client that sends the same bulk requests.

`python -m benchmarks.opensearch_bulk http://127.0.0.1:9200 --rows 200000` writes rows by their ids through the writer
of the table connector, and through two bare clients: `http.client` with `json.dumps`, and, if it is installed,
opensearch-py's `helpers.bulk`. They take turns. It prints processor time (of this process) and elapsed time.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import statistics
import time
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.connectors.opensearch import FailureHandler, Service, bulk_settings
from penstock.sql.connectors.opensearch import Documents, IndexName, OpensearchTableSink
from penstock.sql.data.types import BigIntType, DoubleType, IntType, VarCharType
from penstock.sql.formats.json import JsonMessageEncoder
from penstock.sql.formats.json_columns import JsonRules
from penstock.sql.logical.nodes import PlanColumn, RowSchema

ACTIONS = 1_000
BATCH_ROWS = 4_096
SCHEMA = RowSchema(
    (
        PlanColumn("id", BigIntType()),
        PlanColumn("customer", VarCharType(100)),
        PlanColumn("quantity", IntType()),
        PlanColumn("price", DoubleType()),
        PlanColumn("note", VarCharType(100)),
    )
)


class Context:
    """What a writer needs of its task."""

    subtask_index, parallelism, attempt = 0, 1, 0

    def now_ms(self) -> int:
        return int(time.time() * 1_000)

    def count(self, name: str, increment: int = 1) -> None:
        """Do nothing."""


def rows(count: int) -> list[tuple[Any, ...]]:
    return [(n, f"customer {n % 997}", n % 13, n / 7, f"a note about order {n}, of some length") for n in range(count)]


def write_with_penstock(url: str, values: list[tuple[Any, ...]]) -> None:
    encoder = JsonMessageEncoder(SCHEMA, JsonRules(False, False, False, False, False, "FAIL", "null"))
    documents = Documents(SCHEMA, (0,), "_", IndexName(("orders",), ()), None, False, encoder)
    sink = OpensearchTableSink(Service((url,)), bulk_settings(ACTIONS), FailureHandler.FAIL, documents)
    kinds = [pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.string()]
    context: Any = Context()
    writer = sink.create_writer(context)
    for start in range(0, len(values), BATCH_ROWS):
        columns = zip(*values[start : start + BATCH_ROWS], strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        writer.write_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, SCHEMA.names)), None)
    writer.prepare_commit()
    writer.close()


def write_with_http(url: str, values: list[tuple[Any, ...]]) -> None:
    parts, names = urlsplit(url), SCHEMA.names
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
    for start in range(0, len(values), ACTIONS):
        lines = []
        for row in values[start : start + ACTIONS]:
            lines.append(json.dumps({"index": {"_index": "orders", "_id": str(row[0])}}))
            lines.append(json.dumps(dict(zip(names, row, strict=True))))
        body = ("\n".join(lines) + "\n").encode()
        connection.request("POST", "/_bulk", body, {"Content-Type": "application/x-ndjson"})
        if json.loads(connection.getresponse().read())["errors"]:
            raise SystemExit("the service rejects documents")
    connection.close()


def write_with_opensearch_py(url: str, values: list[tuple[Any, ...]]) -> None:
    opensearchpy = importlib.import_module("opensearchpy")
    names = SCHEMA.names
    actions = (
        {"_index": "orders", "_id": str(row[0]), "_source": dict(zip(names, row, strict=True))} for row in values
    )
    opensearchpy.helpers.bulk(opensearchpy.OpenSearch(url), actions, chunk_size=ACTIONS)


Way = Callable[[str, list[tuple[Any, ...]]], None]


def measure(way: Way, url: str, values: list[tuple[Any, ...]]) -> tuple[float, float]:
    """Return the processor time and the elapsed time of writing into a new index, in seconds."""
    for method, path in (("DELETE", "/orders?ignore_unavailable=true"), ("PUT", "/orders")):
        with urllib.request.urlopen(urllib.request.Request(url + path, method=method)):
            pass
    processor_s, elapsed_s = time.process_time(), time.perf_counter()
    way(url, values)
    return time.process_time() - processor_s, time.perf_counter() - elapsed_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    values = rows(arguments.rows)
    ways: dict[str, Way] = {"penstock": write_with_penstock, "http.client": write_with_http}
    if importlib.util.find_spec("opensearchpy") is None:
        print("opensearch-py is not installed")
    else:
        ways["opensearch-py"] = write_with_opensearch_py
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for way in ways.values():  # warm up the server
        measure(way, arguments.url, values[:20_000])
    for _ in range(arguments.runs):
        for name, way in ways.items():
            times[name].append(measure(way, arguments.url, values))
    medians = {name: tuple(map(statistics.median, zip(*of_way, strict=True))) for name, of_way in times.items()}
    for name, (processor_s, elapsed_s) in medians.items():
        ratios = [own / bare for own, bare in zip((processor_s, elapsed_s), medians["penstock"], strict=True)]
        print(
            f"{name:14} processor {processor_s:6.2f} s ({processor_s / arguments.rows * 1e6:5.1f} µs a row, "
            f"{ratios[0]:.2f} of Penstock's), elapsed {elapsed_s:6.2f} s ({ratios[1]:.2f})"
        )


if __name__ == "__main__":
    main()
