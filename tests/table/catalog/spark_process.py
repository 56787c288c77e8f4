"""A Spark of another release in a process of its own, which takes requests and gives answers as lines of JSON.

`SparkProcess` starts this file with the Python that has that Spark. So the file imports neither Penstock nor the tests.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


def encode(value: Any) -> Any:
    """A value of a column as JSON in which no two different values are equal; times are microseconds."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return ["float", repr(value)]
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return ["decimal", text.rstrip("0").rstrip(".") if "." in text else text]
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.date):
        return ["date", value.isoformat()]
    if isinstance(value, bytes | bytearray | memoryview):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, dict):
        return ["map", sorted(([encode(key), encode(item)] for key, item in value.items()), key=json.dumps)]
    if hasattr(value, "asDict") or hasattr(value, "as_dict") or isinstance(value, tuple):
        return ["row", *map(encode, value)]
    return ["list", *map(encode, value)]


class SparkError(Exception):
    """What Spark says of a statement that fails."""


class SparkProcess:
    """The process, as the tests see it."""

    def __init__(self, python: str, settings: Mapping[str, str], folder: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
        self._log = (folder / "spark.log").open("w")
        self._process = subprocess.Popen(
            [python, str(Path(__file__)), json.dumps(dict(settings))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=folder,
            env={**environment, "TZ": "UTC", "PYTHONPATH": ""},
        )  # fmt: skip
        self._ask({"sql": "SELECT 1"})

    def _ask(self, request: Mapping[str, str]) -> Any:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        line = answers.readline()
        if not line:
            raise RuntimeError(f"the process of Spark ended: {Path(self._log.name).read_text()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise SparkError(f"{request}: {answer['error']}")
        return answer

    def run(self, sql: str) -> list[list[Any]]:
        """The rows of a statement, encoded."""
        rows: list[list[Any]] = self._ask({"sql": sql})["rows"]
        return rows

    def read(self, query: str) -> tuple[list[dict[str, Any]], list[list[Any]]]:
        """The columns of a query as Spark's JSON, and the rows."""
        answer = self._ask({"sql": query})
        return answer["fields"], answer["rows"]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._log.close()


def _serve(settings: Mapping[str, str]) -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        try:
            frame = spark.sql(json.loads(line)["sql"])
            fields = json.loads(frame.schema.json())["fields"]
            columns = [
                functions.unix_micros(functions.col(f"`{field['name']}`").cast("timestamp")).alias(field["name"])
                if field["type"] in ("timestamp", "timestamp_ntz")
                else functions.col(f"`{field['name']}`")
                for field in fields
            ]
            rows = [list(map(encode, row)) for row in (frame.select(columns).collect() if columns else ())]
            answer: dict[str, Any] = {"fields": fields, "rows": rows}
        except Exception as error:  # noqa: BLE001 - the other side judges it
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
