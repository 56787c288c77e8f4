#!/usr/bin/env bash
# delta-rs 1.6.6 creates a table with a TIMESTAMP without a zone under protocol 3, 7, and lists the feature timestampNtz
# alone, even if a column is NOT NULL. Delta Lake 4.0 on Spark then opens the table for nobody: "the following table
# features are enabled in metadata but not listed in protocol: invariants". The property delta.feature.invariants does not
# change the protocol; `alter.add_feature` does, in a version of its own, and Penstock calls it. The script fails when this
# changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

schema = Schema([Field("a", PrimitiveType("timestamp_ntz")), Field("b", PrimitiveType("long"), nullable=False)])
more = {"delta.feature.invariants": "supported"}
for name, configuration in (("plain", None), ("with_property", more)):
    path = f"{sys.argv[1]}/{name}"
    DeltaTable.create(path, schema, configuration=configuration, raise_if_key_not_exists=False)
    protocol = DeltaTable(path).protocol()
    print(name, protocol)
    assert protocol.writer_features == ["timestampNtz"]
PYTHON
