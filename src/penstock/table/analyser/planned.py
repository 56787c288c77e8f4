"""Plans that stand in queries: what the Table API has planned already, and its own rule for `+`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.table.analyser.calls import Calls
from penstock.table.data.logical_types import LENGTH_MAX, VarCharType
from penstock.table.functions.type_rules import is_text
from penstock.table.plan.logical import Node
from penstock.table.sql import sql_of, syntax
from penstock.table.sql.syntax import Query
from penstock.table.typed.nodes import Typed
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class PlannedQuery(Query):
    """A query whose plan is there."""

    kind: ClassVar = "TABLE"
    plan: Node


sql_of.register(PlannedQuery, lambda node: f"TABLE ({', '.join(node.plan.schema.names)})")


class MethodCalls(Calls):
    """Calls as the Table API has them: `+` joins texts, too."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls.session)
        self._calls = calls

    def user_function(self, call: syntax.Call, gives_rows: bool = False) -> UserFunction | None:
        """See `Calls`."""
        return self._calls.user_function(call, gives_rows)

    def call(self, name: str, operands: Sequence[Typed], options: tuple[str, ...] = ()) -> Typed:
        """See `Calls`."""
        if name == "+" and any(is_text(one.type) for one in operands):
            texts = [one if is_text(one.type) else self.cast(one, VarCharType(LENGTH_MAX)) for one in operands]
            return self._calls.call("||", texts)
        return self._calls.call(name, operands, options)
