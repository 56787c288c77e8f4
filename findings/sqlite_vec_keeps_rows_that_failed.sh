#!/usr/bin/env bash
# sqlite-vec 0.1.9 keeps a part of a row whose INSERT has failed. A virtual table vec0 stores the vector of a new row
# before it looks at the columns of metadata. If one of these has a value of another type, the INSERT fails, and the
# stored vector stays. SQLite lets a transaction go on after a failed statement. When it is committed, a search finds
# the row, with an empty text in the column that was refused. A normal table of SQLite takes the whole statement back.
# Seen: the error, and the row after COMMIT.
#
# By cosine, it also puts a vector without a distance (zero, NaN) at the first place for every query, with the distance
# NULL, if that vector is the first row.
#
# Penstock rolls a transaction back after any error, and refuses such vectors. The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sqlite-vec==0.1.9 apsw==3.54.1.0
"$folder/venv/bin/python" - <<'PYTHON'
import struct

import apsw
import sqlite_vec

connection = apsw.Connection(":memory:")
connection.enable_load_extension(True)
connection.load_extension(sqlite_vec.loadable_path())
print("sqlite-vec", *connection.execute("SELECT vec_version()").fetchone(), "on SQLite", apsw.sqlite_lib_version())


def blob(*numbers):
    return struct.pack(f"{len(numbers)}f", *numbers)


connection.execute("CREATE VIRTUAL TABLE drinks USING vec0(id INTEGER PRIMARY KEY, v float[2], kind TEXT)")
connection.execute("BEGIN")
try:
    connection.execute("INSERT INTO drinks VALUES (1, ?, 7)", (blob(1, 2),))
    raise SystemExit("the INSERT did not fail")
except apsw.SQLError as error:
    print("error:", error)
connection.execute("COMMIT")
rows = connection.execute("SELECT id, kind FROM drinks WHERE v MATCH ? AND k = 5", (blob(1, 2),)).fetchall()
print("after COMMIT:", rows)
assert rows == [(1, "")]

connection.execute(
    "CREATE VIRTUAL TABLE angles USING vec0(id INTEGER PRIMARY KEY, v float[2] distance_metric=cosine)"
)
for number, vector in enumerate([(0, 0), (1, 0), (1, 1), (0, 1)]):
    connection.execute("INSERT INTO angles VALUES (?, ?)", (number, blob(*vector)))
for query in ((1, 0), (0, 1), (-1, -1)):
    nearest = connection.execute(
        "SELECT id, distance FROM angles WHERE v MATCH ? AND k = 1", (blob(*query),)
    ).fetchall()
    print("nearest to", query, nearest)
    assert nearest == [(0, None)]
PYTHON
