#!/usr/bin/env bash
# apache-flink 2.3.0 (needs Java 17): an upsert stream of ORDER BY k LIMIT 1 over distinct keys k, with k declared as its
# primary key, never deletes the keys that were replaced. Flink takes the key of the input for the key of the result and
# leaves out the rows before updates. Seen for the rows 3, 2, 1, of which the query keeps one at a time:
#
#   INSERT 3, UPDATE_AFTER 2, UPDATE_AFTER 1
#
# A reader that keeps the last row of each key ends with three rows instead of one. With ChangelogMode.all() the same
# query has UPDATE_BEFORE 3 and UPDATE_BEFORE 2, too. The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'setuptools<81' apache-flink==2.3.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import Schema, StreamTableEnvironment
from pyflink.table.changelog_mode import ChangelogMode

streams = StreamExecutionEnvironment.get_execution_environment()
streams.set_parallelism(1)
tables = StreamTableEnvironment.create(streams)
tables.create_temporary_view("numbers", tables.from_elements([(3,), (2,), (1,)], ["k"]))
query = tables.sql_query("SELECT k FROM (SELECT DISTINCT k FROM numbers) ORDER BY k LIMIT 1")


def changes(mode, builder):
    stream = tables.to_changelog_stream(query, builder.build(), mode)
    with stream.execute_and_collect() as rows:
        return [(row.get_row_kind().name, row[0]) for row in rows]


def schema():
    return Schema.new_builder().column("k", "BIGINT NOT NULL")


upserts = changes(ChangelogMode.upsert(), schema().primary_key("k"))
everything = changes(ChangelogMode.all(), schema())
print("upserts:", upserts)
print("all:    ", everything)
assert upserts == [("INSERT", 3), ("UPDATE_AFTER", 2), ("UPDATE_AFTER", 1)]
assert ("UPDATE_BEFORE", 3) in everything and ("UPDATE_BEFORE", 2) in everything
PYTHON
