#!/usr/bin/env bash
# pyarrow 26.0.1: `pa.array` with a type of whole numbers, dates or times cuts the fractions of Python's floats and
# decimals without an error, while `cast` of the same values refuses. Seen:
#
#   int32 of 7.9: 7        int32 of Decimal('7.9'): 7        date32 of 7.5: 1970-01-08
#   cast of 7.9: ArrowInvalid
#
# A sink that makes columns of Python values by `pa.array(values, type)` therefore writes 7 where a program gave 7.9.
# The script fails when any of this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import datetime
from decimal import Decimal

import pyarrow as pa

print("pyarrow", pa.__version__)
of_float = pa.array([7.9], pa.int32())[0].as_py()
of_decimal = pa.array([Decimal("7.9")], pa.int32())[0].as_py()
day = pa.array([7.5], pa.date32())[0].as_py()
print(f"int32 of 7.9: {of_float}, int32 of Decimal('7.9'): {of_decimal}, date32 of 7.5: {day}")
assert (of_float, of_decimal, day) == (7, 7, datetime.date(1970, 1, 8))
try:
    pa.array([7.9]).cast(pa.int32())
except pa.ArrowInvalid as error:
    print("cast of 7.9:", type(error).__name__)
else:
    raise AssertionError("the cast takes 7.9")
PYTHON
