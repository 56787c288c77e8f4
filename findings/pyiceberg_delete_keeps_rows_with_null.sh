#!/usr/bin/env bash
# pyiceberg 0.12.0 deletes other rows than its scan finds with the same condition, as soon as a column that the condition
# compares is NULL. To rewrite a file it keeps the rows for which the condition is false, and every row with a NULL in a
# compared column. But with OR a row may satisfy the condition in spite of its NULL; such a row stays. And the rule passes
# over a column that the condition also tests for NULL; such a row goes. Seen, for rows (a, b): what the scan finds, then
# what is left:
#
#   a = 1 OR b = 2          finds (1, 2) (1, None)   leaves (1, None) (None, 1)
#   a IS NULL AND a = 1     finds nothing            leaves (1, 2) (1, None)
#
# The second delete removes the row (None, 1), which no scan with this condition has. Penstock has pyiceberg delete only
# where both agree, and otherwise rewrites the rows itself. The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, IsNull, Or

folder = Path(sys.argv[1])
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
catalog.create_namespace("n")
rows = pa.table({"a": pa.array([1, 1, None], pa.int32()), "b": pa.array([2, None, 1], pa.int32())})


def found(scan):
    return sorted((tuple(row.values()) for row in scan.to_arrow().to_pylist()), key=str)


def try_condition(name, condition):
    table = catalog.create_table(name, rows.schema)
    table.append(rows)
    finds = found(table.scan(condition))
    table.delete(condition)
    leaves = found(catalog.load_table(name).scan())
    print(condition, "finds", finds, "leaves", leaves)
    return finds, leaves


print("pyiceberg", pyiceberg.__version__)
assert try_condition("n.either", Or(EqualTo("a", 1), EqualTo("b", 2))) == (
    [(1, 2), (1, None)],
    [(1, None), (None, 1)],
)
assert try_condition("n.both", And(IsNull("a"), EqualTo("a", 1))) == ([], [(1, 2), (1, None)])
PYTHON
