#!/usr/bin/env bash
# deltalake 1.6.6 writes the least and greatest value of a DECIMAL column into the log of a table as a double. With more
# than 15 digits the bound is another number than the value, and may lie on the wrong side of it. Seen for the one value
# 12345678901234.5678 of a DECIMAL(18, 4):
#
#   minValues 12345678901234.568, maxValues 12345678901234.568
#
# A reader that leaves out files by these bounds does not find the row with `= 12345678901234.5678` or with
# `< 12345678901234.5679`. The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/table" <<'PYTHON'
import json
import sys
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa

value = Decimal("12345678901234.5678")
deltalake.write_deltalake(sys.argv[1], pa.table({"d": pa.array([value], pa.decimal128(18, 4))}))
log = (Path(sys.argv[1]) / "_delta_log" / "00000000000000000000.json").read_text().splitlines()
(added,) = [json.loads(line)["add"] for line in log if "add" in json.loads(line)]
statistics = json.loads(added["stats"], parse_float=Decimal)
print("deltalake", deltalake.__version__, "value", value, "statistics", statistics)
least, greatest = statistics["minValues"]["d"], statistics["maxValues"]["d"]
assert least == greatest == Decimal("12345678901234.568")
assert least > value
PYTHON
