"""Where rows come from: tables, and rows of the program."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.columns import ColumnsSource
from penstock.table.connectors.tables import TableReader
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import ArrowRows, Scan, StreamRows, Values
from penstock.table.streaming.planning.rule import Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns, names_of
from penstock.table.streaming.planning.table_options import parallelism_of
from penstock.table.streaming.rows.normalize_operator import ChangelogNormalizeOperator
from penstock.table.streaming.rows.state_times import lasting


class ValuesRule(Rule[Values]):
    """VALUES, and queries without FROM."""

    nodes = (Values,)

    def changes(self, node: Values, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def stream(self, node: Values, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        names = names_of(node.schema)
        if not names:
            # A query without FROM reads one row that has a column nobody asks for.
            batch = pa.RecordBatch.from_arrays([pa.nulls(len(node.rows))], ["c0"])
            return planning.source("Values", ColumnsSource(batch), node.schema, INSERTS, False)
        rows = [Evaluator(row, planning.calls.session)(Columns((), 1)) for row in node.rows]
        arrays = [
            pa.concat_arrays([row[index] for row in rows]) if rows else pa.array([], arrow_type(column.type))
            for index, column in enumerate(node.schema)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return planning.source("Values", ColumnsSource(batch), node.schema, INSERTS, False)


class ArrowRowsRule(Rule[ArrowRows]):
    """Rows that the program has in memory."""

    nodes = (ArrowRows,)

    def changes(self, node: ArrowRows, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def stream(self, node: ArrowRows, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        data = node.data.combine_chunks()
        arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in data.itercolumns()]
        batch = pa.RecordBatch.from_arrays(arrays, names_of(node.schema))
        return planning.source("Rows", ColumnsSource(batch), node.schema, INSERTS, False)


class ScanRule(Rule[Scan]):
    """Tables. Where updates do not say which row they replace, and somebody has to know, a step finds out."""

    nodes = (Scan,)

    def changes(self, node: Scan, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.table(node).changes

    def stream(self, node: Scan, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        table = planning.table(node)
        title = ".".join(node.path)
        if table.source is None:
            raise ValidationError(f"table '{title}' is read by Spark, in batch only: its connector has no source")
        parallelism = parallelism_of(node)
        if parallelism is not None and table.changes != INSERTS:
            raise UnsupportedError(
                f"option 'scan.parallelism' of table {title} is not supported where rows are updated or deleted: leave "
                "it out, so that the changes of a row stay in order"
            )
        found = planning.source(title, table.source, node.schema, table.changes, table.has_before, parallelism)
        return normalized(found, table, title, planning, wants_before)


def normalized(
    found: Stream, table: TableReader | StreamRows, title: str, planning: Planning, wants_before: bool
) -> Stream:
    """The rows of a table with the changes that the rest of the plan asks for."""
    if not table.is_upsert and (table.has_before or not wants_before or Changes.UPDATE not in table.changes):
        return found
    if not table.key:
        raise ValidationError(
            f"Table '{title}' produces a changelog stream that contains UPDATE_AFTER but no UPDATE_BEFORE. This "
            "requires defining primary key constraint on the table."
        )
    names = names_of(found.schema)
    operator = partial(ChangelogNormalizeOperator, table.key, found.schema.types, names, wants_before)
    factory = lasting(operator, planning.options.state_ttl_ms)
    upstreams = planning.step("Changelog Normalize", factory, by_columns(found, table.key), is_stateful=True)
    return Stream(upstreams, found.schema, table.changes, wants_before)
