#!/usr/bin/env bash
# PyArrow 26.0.1 encodes all chunks of a column with one dictionary. combine_chunks() of the result works while that
# dictionary holds NULL or NaN, and raises ArrowInvalid when it holds both: it compares the dictionaries of the chunks,
# NaN differs from itself, and merging dictionaries with NULL is not implemented. Seen:
#
#   NULL: [0, 1, 2]
#   NaN: [0, 1, 2]
#   both: ArrowInvalid: Cannot yet unify dictionaries with nulls
#
# The indices of the chunks can be joined instead. The script fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.compute as pc

NAN = float("nan")
seen = []
for name, chunks in {"NULL": [[1.0, None], [2.0]], "NaN": [[1.0, NAN], [2.0]], "both": [[NAN, None], [2.0]]}.items():
    encoded = pc.dictionary_encode(pa.chunked_array(chunks, pa.float64()), null_encoding="encode")
    assert len({str(chunk.dictionary) for chunk in encoded.chunks}) == 1
    try:
        seen.append(f"{name}: {encoded.combine_chunks().indices.to_pylist()}")
    except pa.ArrowInvalid as error:
        seen.append(f"{name}: ArrowInvalid: {error}")
print("PyArrow", pa.__version__, *seen, sep="\n")
wanted = ["NULL: [0, 1, 2]", "NaN: [0, 1, 2]", "both: ArrowInvalid: Cannot yet unify dictionaries with nulls"]
sys.exit(seen != wanted)
PYTHON
