"""Tables of other writers with features of the protocol: read if possible, or refused by name while planning."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.connectors.delta.test_source import Following, follow, read_ids

from penstock.connectors.delta.source import DeltaSource
from penstock.connectors.delta.table import UnsupportedTableError, VersionError
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.connectors import read_source

BEGIN_MS = 1_600_000_000_000


def declare(path: Path, columns: str = "id INT, v DOUBLE", more: str = "") -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local").set("restart-strategy.type", "none")
    tables.execute_sql(f"CREATE TABLE t ({columns}) WITH ('connector' = 'delta', 'table-path' = '{path}'{more})")
    return tables


def read_rows(tables: TableEnvironment) -> list[tuple[Any, ...]]:
    with tables.execute_sql("SELECT * FROM t").collect() as rows:
        return sorted(map(tuple, rows))


def make(
    path: Path,
    writer: tuple[str, ...],
    reader: tuple[str, ...] = (),
    configuration: dict[str, str] | None = None,
    kind: str | None = None,
    metadata: dict[str, str] | None = None,
) -> None:
    """A table of one row whose log says that it has these features. `kind`: the type of `id` from now on."""
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([1.5])}))
    log = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3 if reader else 1,
                "minWriterVersion": 7,
                "writerFeatures": [*writer, *reader],
                **({"readerFeatures": list(reader)} if reader else {}),
            }
        if "metaData" in action:
            action["metaData"]["configuration"] = configuration or {}
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["type"] = kind or "integer"
            schema["fields"][1]["metadata"] = metadata or {}
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize(
    ("feature", "configuration", "metadata"),
    [
        ("rowTracking", {"delta.enableRowTracking": "true"}, {}),
        ("allowColumnDefaults", {}, {"CURRENT_DEFAULT": "7.5"}),
        ("clustering", {}, {}),
        ("domainMetadata", {}, {}),
        ("identityColumns", {}, {}),
        ("icebergCompatV1", {}, {}),
    ],
)
def test_features_for_writers_are_read_and_not_written(
    tmp_path: Path, feature: str, configuration: dict[str, str], metadata: dict[str, str]
) -> None:
    """K4: delta-rs refuses to commit to such a table, so the job failed at its first checkpoint."""
    make(tmp_path, (feature,), configuration=configuration, metadata=metadata)
    tables = declare(tmp_path)
    assert read_rows(tables) == [(1, 1.5)]
    with pytest.raises(UnsupportedTableError, match=f"table feature {feature}, .* cannot be written"):
        tables.execute_sql("INSERT INTO t VALUES (2, 2.5)")


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        ("long", "BIGINT", 1),
        ("double", "DOUBLE", 1.0),
        ("decimal(12,2)", "DECIMAL(12, 2)", Decimal("1.00")),
    ],
)
@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_columns_that_became_wider_are_read(tmp_path: Path, kind: str, declared: str, value: Any, feature: str) -> None:
    """K4: older files have the narrower type."""
    make(tmp_path, (), (feature,), {"delta.enableTypeWidening": "true"}, kind)
    tables = declare(tmp_path, f"id {declared}, v DOUBLE")
    assert read_rows(tables) == [(value, 1.5)]
    with tables.execute_sql(f"SELECT v FROM t WHERE id = CAST(1 AS {declared})").collect() as rows:
        assert [tuple(row) for row in rows] == [(1.5,)]
    with pytest.raises(UnsupportedTableError, match="typeWidening"):
        tables.execute_sql(f"INSERT INTO t SELECT CAST(2 AS {declared}), 2.5E0")


@pytest.mark.parametrize(
    ("reader", "configuration", "text"),
    [
        (("futureThing",), {}, "futureThing"),
        (("catalogManaged",), {}, "catalog-managed"),
        (("columnMapping",), {"delta.columnMapping.mode": "name"}, "[Cc]olumn mapping"),
    ],
)
def test_what_cannot_be_read_is_refused_while_planning(
    tmp_path: Path, reader: tuple[str, ...], configuration: dict[str, str], text: str
) -> None:
    make(tmp_path, (), reader, configuration)
    with pytest.raises(UnsupportedTableError, match=f"{tmp_path} .*{text}"):
        declare(tmp_path).execute_sql("SELECT * FROM t")
    with pytest.raises(UnsupportedTableError, match=text):
        DeltaSource.for_bounded_row_data(tmp_path).build()
    with pytest.raises(UnsupportedTableError, match=text):
        declare(tmp_path).execute_sql("INSERT INTO t VALUES (2, 2.5)")


@pytest.mark.parametrize("feature", ["vacuumProtocolCheck", "v2Checkpoint", "deletionVectors", "variantType"])
def test_features_without_a_meaning_for_rows_are_read(tmp_path: Path, feature: str) -> None:
    make(tmp_path, (), (feature,))
    assert read_rows(declare(tmp_path)) == [(1, 1.5)]


def test_append_only_tables_are_not_written_by_key(tmp_path: Path) -> None:
    make(tmp_path, ("appendOnly",), configuration={"delta.appendOnly": "true"})
    declare(tmp_path).execute_sql("INSERT INTO t VALUES (2, 2.5)").wait()
    tables = declare(tmp_path, "id INT, v DOUBLE, PRIMARY KEY (id) NOT ENFORCED")
    with pytest.raises(UnsupportedTableError, match=r"delta\.appendOnly"):
        tables.execute_sql("INSERT INTO t VALUES (2, 2.5)")


def test_times_of_commits_choose_the_version(tmp_path: Path) -> None:
    """K4: files of a copied log are all new, and the times in the commits are those that count."""
    for number in range(3):
        write_deltalake(tmp_path, pa.table({"id": pa.array([number], pa.int32())}), mode="append")
    for number in range(3):  # delta-rs does not write such a table itself
        log = tmp_path / "_delta_log" / f"{number:020d}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "protocol" in action:
                action["protocol"] = {
                    "minReaderVersion": 1,
                    "minWriterVersion": 7,
                    "writerFeatures": ["inCommitTimestamp"],
                }
            if "metaData" in action:
                action["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": "true"}
            if "commitInfo" in action:
                action["commitInfo"]["inCommitTimestamp"] = BEGIN_MS + 1_000 * number
        log.write_text("\n".join(map(json.dumps, sorted(actions, key=lambda one: "commitInfo" not in one))))

    def moment(offset_ms: int) -> str:
        return datetime.datetime.fromtimestamp((BEGIN_MS + offset_ms) / 1_000, datetime.UTC).isoformat()

    for offset_ms, count in ((0, 1), (1_500, 2), (2_000, 3), (99_000, 3)):
        source = DeltaSource.for_bounded_row_data(tmp_path).timestamp_as_of(moment(offset_ms)).build()
        assert read_ids(read_source(source)) == list(range(count))
        assert len(read_rows(declare(tmp_path, "id INT", f", 'timestampAsOf' = '{moment(offset_ms)}'"))) == count
    with pytest.raises(VersionError, match="its earliest is of 2020-09-13"):
        read_rows(declare(tmp_path, "id INT", f", 'timestampAsOf' = '{moment(-1)}'"))
    following = Following(follow(tmp_path).starting_timestamp(moment(1_500)).build())
    assert [row.id for row in following.rows()] == [2]
