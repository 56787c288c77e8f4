"""The functions that plan each kind of node in batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.table.batch import aggregations, joins, leaves, patterns, relations, windows
from penstock.table.batch.planning import BatchPlanner
from penstock.table.plan import logical
from penstock.table.plan.patterns import MatchRecognize

#: turns each kind of node into a query
QUERIES: Final[dict[type[logical.Node], Callable[[BatchPlanner, Any], str]]] = {
    logical.Scan: leaves.scan,
    logical.Values: leaves.values,
    logical.ArrowRows: leaves.arrow_rows,
    logical.Project: relations.project,
    logical.Filter: relations.filtered,
    logical.WatermarkAssigner: relations.passed_on,
    logical.Join: joins.join,
    logical.TemporalJoin: joins.looked_up,
    logical.Aggregate: aggregations.aggregate,
    logical.Distinct: aggregations.distinct,
    logical.Correlate: relations.correlate,
    logical.SetOperation: relations.set_operation,
    logical.Sort: relations.sort,
    logical.Over: windows.over,
    logical.Rank: windows.rank,
    logical.WindowTable: windows.window_table,
    MatchRecognize: patterns.match,
}
