#!/usr/bin/env bash
# pyiceberg 0.12.0 writes manifests whose `equality_ids` are a list of `long`. The table specification says
# `list<136: int>`, and Java's library declares `int`, too. Seen in the Avro schema of a manifest with one data file:
#
#   135 equality_ids items long
#
# A reader that takes Avro's types as the specification has them cannot resolve long to int. Penstock reads both. The
# script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 fastavro==1.12.2
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import fastavro
import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

folder = Path(sys.argv[1])
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
catalog.create_namespace("n")
rows = pa.table({"id": pa.array([1], pa.int32())})
table = catalog.create_table("n.t", rows.schema)
table.append(rows)
(manifest,) = (folder / "warehouse").rglob("*-m0.avro")
with manifest.open("rb") as file:
    schema = fastavro.reader(file).writer_schema
(data_file,) = [field["type"] for field in schema["fields"] if field["name"] == "data_file"]
(ids,) = [field for field in data_file["fields"] if field["field-id"] == 135]
(array,) = [branch for branch in ids["type"] if branch != "null"]
print("pyiceberg", pyiceberg.__version__, "field", ids["field-id"], ids["name"], "items", array["items"])
assert array["items"] == "long"
PYTHON
