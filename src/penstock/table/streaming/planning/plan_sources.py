"""Plans sources: tables, VALUES, and in-memory rows of the program."""

from __future__ import annotations

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.columns import ColumnsSource
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.evaluation.evaluator import columns_of_rows
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import ArrowRows, Scan, Values
from penstock.table.streaming.planning.rule import Planning, Rule
from penstock.table.streaming.planning.streams import Stream, name_columns
from penstock.table.streaming.planning.table_options import read_parallelism
from penstock.table.streaming.rows.drop_update_before_operator import DropUpdateBeforeOperator


class ValuesRule(Rule[Values]):
    """VALUES, and queries without FROM."""

    nodes = (Values,)

    def changes(self, node: Values, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def stream(self, node: Values, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        names = name_columns(node.schema)
        if not names:
            # A query without FROM reads one row with an unused column.
            batch = pa.RecordBatch.from_arrays([pa.nulls(len(node.rows))], ["c0"])
            return planning.source("Values", TableReader(ColumnsSource(batch)), node.schema)
        arrays = columns_of_rows(node.rows, node.schema.types, planning.calls.session)
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return planning.source("Values", TableReader(ColumnsSource(batch)), node.schema)


class ArrowRowsRule(Rule[ArrowRows]):
    """In-memory rows of the program."""

    nodes = (ArrowRows,)

    def changes(self, node: ArrowRows, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def stream(self, node: ArrowRows, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        data = node.data.combine_chunks()
        arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in data.itercolumns()]
        batch = pa.RecordBatch.from_arrays(arrays, name_columns(node.schema))
        return planning.source("Rows", TableReader(ColumnsSource(batch)), node.schema)


class ScanRule(Rule[Scan]):
    """Tables. If they are updated by key, a step above them normalizes their changes, see `plan_normalize`."""

    nodes = (Scan,)

    def changes(self, node: Scan, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.table(node).changes

    def stream(self, node: Scan, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        return self.read(node, planning.table(node), planning, wants_before)

    @staticmethod
    def read(node: Scan, table: TableReader, planning: Planning, wants_before: bool) -> Stream:
        """Add the steps that read a table with this reader."""
        title = ".".join(node.path)
        if table.source is None:
            raise ValidationError(f"table '{title}' is read by Spark, in batch only: its connector has no source")
        parallelism = read_parallelism(node)
        if parallelism is not None and table.changes != INSERTS:
            raise UnsupportedError(
                f"option 'scan.parallelism' of table {title} is not supported where rows are updated or deleted: leave "
                "it out, so that the changes of a row stay in order"
            )
        stream = planning.source(node.path[-1], table, node.schema, parallelism)
        if wants_before or not stream.has_before or Changes.UPDATE not in stream.changes:
            return stream
        upstreams = planning.step("Drop Update Before", DropUpdateBeforeOperator, stream.upstreams, True)
        return Stream(upstreams, node.schema, stream.changes, False)
