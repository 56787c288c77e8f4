#!/usr/bin/env bash
# pyarrow 26.0.1: a cast of text to decimal128 multiplies by the scale without a check of the 128 bits, so a number with
# too many digits becomes another number without an error. Seen for 10^30 as decimal128(38, 18), which holds 20 digits
# before the point:
#
#   18960114910927365649.471927446130393088
#
# 10^21 is refused (it does not fit the precision). A reader of PostgreSQL's plain numeric that
# casts the server's text in this way gives wrong amounts. The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
from decimal import Decimal

import pyarrow as pa

print("pyarrow", pa.__version__)
kind = pa.decimal128(38, 18)
for zeros in (30, 21):
    text = "1" + "0" * zeros
    try:
        print(f"10^{zeros}:", pa.array([text]).cast(kind)[0].as_py())
    except pa.ArrowInvalid as error:
        print(f"10^{zeros}: {type(error).__name__}: {error}")
found = pa.array(["1" + "0" * 30]).cast(kind)[0].as_py()
assert found != Decimal(10) ** 30
PYTHON
