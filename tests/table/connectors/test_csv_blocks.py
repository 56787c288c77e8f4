"""Blocks of CSV files: the rows do not depend on which way a block is cut into fields."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from tests.table.connectors.tables import held_rows
from tests.table.connectors.test_formats import make_schema

from penstock.formats.file_format import DecodedBlock
from penstock.sql.formats import built_in_formats
from penstock.sql.tables.connector import TableOptions

SCHEMA = make_schema(a="STRING", b="INT")
LINES = st.one_of(
    st.sampled_from(("x,1", "ä,2", ",", "x", "", " ", "x,1,2", "x,y", "#x,1", "x,", " x , 1 ")),
    st.text("x1, \r\t\0", max_size=6),
)
ENDS = st.sampled_from(("\n", "\r\n", "\r"))


def decoded(block: bytes, ignores: bool) -> DecodedBlock:
    options = {"format": "csv", "csv.ignore-parse-errors": str(ignores).lower()}
    found, below = built_in_formats().find(TableOptions("t", options))
    files = found.decoding(SCHEMA, range(len(SCHEMA)), below).files
    return files.create_decoder(b"").decode(block, True)  # type: ignore[union-attr]


@given(st.lists(st.tuples(LINES, ENDS), min_size=1, max_size=8), st.booleans())
def test_quoted_line_does_not_change_how_its_neighbours_are_read(lines: list[tuple[str, str]], ignores: bool) -> None:
    """K1: Arrow cuts a block without quotes, and Python's `csv` cuts a block with one."""
    block = "".join(line + end for line, end in lines).encode() + b"\n"
    alone, among = decoded(block, ignores), decoded(block + b'"q",7\n', ignores)
    rows = held_rows(among.values.columns, SCHEMA.types)  # type: ignore[union-attr]
    assert rows[-1] == ("q", 7)
    assert held_rows(alone.values.columns, SCHEMA.types) == rows[:-1]  # type: ignore[union-attr]
    assert list(alone.malformed) == list(among.malformed)


def test_lines_may_end_with_a_carriage_return() -> None:
    """K2: Flink reads the same rows of these bytes."""
    for block, first in ((b"x,1\ry,2\nz,3\n", "x"), (b'"x\rq",1\ry,2\r\nz,3\n', "x\rq")):
        found = decoded(block, False)
        assert held_rows(found.values.columns, SCHEMA.types) == [(first, 1), ("y", 2), ("z", 3)]  # type: ignore[union-attr]
        assert not found.malformed
