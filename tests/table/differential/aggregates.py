"""Random calls of aggregate functions whose results do not depend on the order of rows."""

from __future__ import annotations

from typing import Final

from tests.table.differential.dialects import both
from tests.table.differential.expressions import Expressions
from tests.table.differential.kinds import DOUBLE, FRACTION, HUGE, INT, MONEY, ROWTIME, TOTAL, Kind
from tests.table.differential.relations import Relation

#: a macro of DuckDB: the sum of decimals of 38 digits, NULL where the sum has more
HUGE_SUM: Final = "huge_sum"


class Aggregates(Expressions):
    """Builds calls. Each comes with the kind of its result."""

    def call(self, inner: Relation) -> tuple[str, Kind]:
        """A call over the columns of a query, perhaps with FILTER and DISTINCT."""
        condition = f" FILTER (WHERE {self.condition(inner, 1)})" if self._one_in(4) else ""
        distinct = "DISTINCT " if self._one_in(3) else ""
        call, kind = self._pick(self._calls(inner, distinct, condition))
        return call, kind

    def simple_call(self, inner: Relation) -> tuple[str, Kind]:
        """A call without FILTER and DISTINCT."""
        return self._pick(self._calls(inner, "", ""))

    def _calls(self, inner: Relation, distinct: str, condition: str) -> list[tuple[str, Kind]]:
        calls = [(f"COUNT(*){condition}", INT)]
        for column in inner.columns:
            name = column.name
            calls.append((f"COUNT({distinct}{name}){condition}", INT))
            if column.kind.has_order and column.kind != ROWTIME:
                calls += [(f"{function}({name}){condition}", column.kind) for function in ("MIN", "MAX")]
            calls += self._of_kind(name, column.kind, distinct, condition)
            if not distinct and not condition and column.kind != ROWTIME:
                calls.append((both(f"CARDINALITY(ARRAY_AGG({name}))", f"len(list({name}))"), INT))
        return calls

    @staticmethod
    def _of_kind(name: str, kind: Kind, distinct: str, condition: str) -> list[tuple[str, Kind]]:
        """Calls that only a kind has."""
        argument = f"{distinct}{name}"
        if kind == INT:
            average = f"CAST(trunc(sum({argument}){condition} / count({argument}){condition}) AS BIGINT)"
            return [
                (f"SUM({argument}){condition}", INT),
                (both(f"AVG({argument}){condition}", average), INT),
            ]
        if kind == DOUBLE:
            return [(f"{function}({argument}){condition}", DOUBLE) for function in ("SUM", "AVG")]
        if kind == MONEY:
            return [(f"SUM({argument}){condition}", TOTAL)]
        if kind == HUGE and not distinct and not condition:
            return [(both(f"SUM({name})", f"{HUGE_SUM}({name})"), HUGE)]
        if kind == FRACTION:
            return [(_sign_of_variance(f"VAR_POP({argument}){condition}"), INT)]
        return []


def _sign_of_variance(variance: str) -> str:
    """Whether a variance is unknown, zero or above, whatever its rounding."""
    return f"CASE WHEN {variance} IS NULL THEN 0 WHEN {variance} > 0.0001 THEN 2 ELSE 1 END"
