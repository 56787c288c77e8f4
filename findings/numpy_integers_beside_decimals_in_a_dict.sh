#!/usr/bin/env bash
# A Decimal and an equal integer of NumPy have the same hash, so a dictionary or a set compares them. Whether that works
# depends on which of them asks: Decimal.__eq__ takes numpy.int64 for a rational number, and then does not accept its
# numerator. Seen with NumPy 2.4.6 on Python 3.11:
#
#   int64 first, then Decimal: one key; Decimal first, then int64: TypeError: argument must be an integer
#
# The script fails when both orders do the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from decimal import Decimal

import numpy


def keys_of(*keys):
    try:
        count = len(dict.fromkeys(keys))
    except TypeError as error:
        return f"TypeError: {error}"
    return "one key" if count == 1 else f"{count} keys"


number, decimal = numpy.int64(1), Decimal(1)
assert hash(number) == hash(decimal)
found, other = keys_of(number, decimal), keys_of(decimal, number)
print("Python", sys.version.split()[0], "NumPy", numpy.__version__)
print(f"int64 first, then Decimal: {found}; Decimal first, then int64: {other}")
sys.exit(found == other)
PYTHON
