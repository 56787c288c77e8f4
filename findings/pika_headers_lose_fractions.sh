#!/usr/bin/env bash
# pika 1.4.4: headers of messages that are floats, which AMQP 0-9-1 of RabbitMQ has as types `d` and `f`, lose their
# fractions when they are read, and cannot be written. Seen:
#
#   read d 2.75: 2L        read f 2.75: 2L        write 2.5: UnsupportedAMQPFieldException
#
# The values read are of a class of long integers, so nothing tells them from headers that were integers. A consumer
# that keeps a price or a ratio in a header gets another number without an error. The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pika==1.4.4
"$folder/venv/bin/python" - <<'PYTHON'
import struct

import pika
from pika import data
from pika.exceptions import UnsupportedAMQPFieldException


def read(kind, value):
    """The header of a table with one field, as a server sends it."""
    field = bytes([5]) + b"ratio" + kind + value
    headers, _ = data.decode_table(struct.pack(">I", len(field)) + field, 0)
    return headers["ratio"]


print("pika", pika.__version__)
double, single = read(b"d", struct.pack(">d", 2.75)), read(b"f", struct.pack(">f", 2.75))
print(f"read d 2.75: {double!r}, read f 2.75: {single!r}")
assert (double, single) == (2, 2) and not isinstance(double, float)
try:
    data.encode_table([], {"ratio": 2.5})
except UnsupportedAMQPFieldException as error:
    print("write 2.5:", type(error).__name__)
else:
    raise AssertionError("a float is written")
PYTHON
