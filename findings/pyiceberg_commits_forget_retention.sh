#!/usr/bin/env bash
# pyiceberg 0.12.0 forgets how long a branch keeps its snapshots as soon as it commits to that branch. A branch has
# `max-ref-age-ms`, `max-snapshot-age-ms` and `min-snapshots-to-keep`; the update that an append makes sets the branch to
# the new snapshot without them. Seen before and after one append:
#
#   86400000 3600000 5
#   None None None
#
# From then on an expiry of snapshots goes by the properties of the table: it may remove snapshots that the branch was to
# keep, and it keeps a branch that was to end. Penstock copies the three values into its commits. The script fails when
# this changes.
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

folder = Path(sys.argv[1])
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
catalog.create_namespace("n")
rows = pa.table({"id": pa.array([1], pa.int32())})
table = catalog.create_table("n.t", rows.schema)
table.append(rows)
with table.manage_snapshots() as snapshots:
    snapshots.create_branch(
        table.current_snapshot().snapshot_id,
        "audit",
        max_ref_age_ms=86_400_000,
        max_snapshot_age_ms=3_600_000,
        min_snapshots_to_keep=5,
    )


def retention():
    ref = catalog.load_table("n.t").metadata.refs["audit"]
    return ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep


print("pyiceberg", pyiceberg.__version__)
before = retention()
print(*before)
catalog.load_table("n.t").append(rows, branch="audit")
after = retention()
print(*after)
assert before == (86_400_000, 3_600_000, 5)
assert after == (None, None, None)
PYTHON
