#!/usr/bin/env bash
# pyiceberg 0.12.0 with SQLAlchemy 2.1 and SQLite: a commit fails with "database is locked", because another process
# reads the catalog, and the same catalog object then shows it as done, as long as the other process reads. The connection
# goes back to the pool with its transaction, and the next query takes it from there. Nobody else sees the change, and it
# is gone in the end. Who looks whether a failed commit has happened after all, as a writer that commits exactly once does,
# must open the catalog anew. Penstock does. The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 \
    sqlalchemy==2.1.9
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sqlite3
import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError

folder = Path(sys.argv[1])


def opened():
    return SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db?timeout=0.1", warehouse=f"file://{folder}/warehouse")


def rows(catalog):
    return catalog.load_table("n.t").scan().to_arrow().num_rows


catalog = opened()
catalog.create_namespace("n")
data = pa.table({"a": [1, 2]})
table = catalog.create_table("n.t", data.schema)
reader = sqlite3.connect(folder / "catalog.db")
cursor = reader.execute("SELECT * FROM iceberg_tables UNION ALL SELECT * FROM iceberg_tables")
cursor.fetchone()
try:
    table.append(data)
except OperationalError as error:
    print("the commit fails:", error.orig)
else:
    raise AssertionError("the commit succeeds")
same, other = rows(catalog), rows(opened())
print("rows that the same catalog shows:", same, "and another:", other)
cursor.close()
later = rows(opened())
print("rows when nobody reads any more:", later)
assert (same, other, later) == (2, 0, 0)
PYTHON
