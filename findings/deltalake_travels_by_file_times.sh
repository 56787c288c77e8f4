#!/usr/bin/env bash
# deltalake 1.6.6 does not look at the in-commit timestamps of a table (table feature `inCommitTimestamp` of Delta's
# protocol) when it travels in time. The protocol says that they are the times of the commits. The script makes a table
# with the commits 0 and 1, whose in-commit timestamps are of 2024-01-01 and 2024-03-01, and asks for 2024-02-01, of
# which version 0 is right. The answer follows when the files of the log were last written, so it changes when a table
# is copied:
#
#   files of the log written in 2020: version 1
#   files of the log written in 2025: version 0
#
# The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/table" <<'PYTHON'
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pyarrow as pa

path = sys.argv[1]
for number in (1, 2):
    deltalake.write_deltalake(path, pa.table({"n": [number]}), mode="append")
log = sorted((Path(path) / "_delta_log").glob("*.json"))
times = [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)]
for file, time in zip(log, times, strict=True):
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    (commit,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    commit["inCommitTimestamp"] = int(time.timestamp() * 1000)
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": "true"}
    actions.sort(key=lambda action: "commitInfo" not in action)  # the protocol wants it first
    file.write_text("\n".join(json.dumps(action) for action in actions) + "\n")

found = {}
for year in (2020, 2025):
    for file in log:
        seconds = datetime(year, 1, 1, tzinfo=UTC).timestamp()
        os.utime(file, (seconds, seconds))
    table = deltalake.DeltaTable(path)
    table.load_as_version(datetime(2024, 2, 1, tzinfo=UTC))
    found[year] = table.version()
    print(f"files of the log written in {year}: version {found[year]}")
print("deltalake", deltalake.__version__)
assert found == {2020: 1, 2025: 0}, found
PYTHON
