"""User-defined aggregate functions, maintained row by row.

The state of a group is empty until its first row, and then [its accumulator, a checksum of its rows]. The checksum is
maintained only if the input may contain retractions. It is 0 exactly if the added and the retracted rows are the same.
So a group without rows is known to be empty, whatever its accumulator contains, and a group with a pending retraction
is not mistaken for empty.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from penstock.base.errors import MisuseError
from penstock.core.operators.base import UserCodeError
from penstock.state.backend import KeyedStateBackend
from penstock.table.data.conversion import is_seen_as_held, to_external
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import RowType
from penstock.table.plan.logical import UserAggregateCall
from penstock.table.streaming.aggregates.base import Accumulator, Rows
from penstock.table.streaming.aggregates.kept_views import KeptViews
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.user_functions.aggregate_classes import implements
from penstock.table.user_functions.definition import GENERAL, UserFunction
from penstock.table.user_functions.opened import OpenFunctions
from penstock.table.user_functions.tables import iterate_rows, unpack_row
from penstock.table.user_functions.values import Results

#: the indexes of the parts of the state
_ACCUMULATOR, _SUM = 0, 1
_SUMS: Final = 2**64


def check_retracts(user: UserFunction) -> None:
    """Raise `ValidationError` for a function that does not support retraction."""
    if user.func_type == GENERAL and not implements(user.function, "retract"):
        raise ValidationError(
            f"Could not find an implementation method 'retract' in class '{type(user.function).__name__}' for function "
            f"'{user.name}': rows that it has taken in change, go, or leave its window. Implement retract(accumulator, "
            "*args), which takes back what accumulate has taken in"
        )


class UserAccumulator(Accumulator):
    """A user-defined aggregate function. `retracts`: whether the input may contain retractions."""

    call: UserAggregateCall

    def __init__(self, call: UserAggregateCall, retracts: bool, functions: OpenFunctions) -> None:
        super().__init__(call)
        self._user = call.user
        self._functions = functions
        self._function = functions.open(call.user)
        self._retracts = retracts
        types = [operand.type for operand in call.operands]
        self._equality = RowEquality(types, zeros="merged")
        self._seen: list[Callable[[Any], Any]] | None = None
        if not all(map(is_seen_as_held, types)):
            self._seen = [to_external(kind, functions.zone, for_functions=True) for kind in types]
        self._results = Results(call.type, functions.zone)
        self._views: KeptViews | None = None

    def keep_apart(self, keyed: KeyedStateBackend, name: str) -> None:
        """See `Accumulator`: views have separate states."""
        views = KeptViews(keyed, name, self._created())
        self._views = views if views.are_there else None

    def create(self) -> Any:
        """See `Accumulator`."""
        return []

    def _created(self) -> Any:
        try:
            accumulator = self._function.create_accumulator()
        except Exception as error:
            raise self._failed("create_accumulator", ()) from error
        if accumulator is None:
            raise self._failed("create_accumulator", ()) from MisuseError("it returned None, which is no accumulator")
        return accumulator

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state or [self._created(), 0], values, 1)

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state or [self._created(), 0], values, -1)

    def _changed(self, state: list[Any], values: tuple[Any, ...], by: int) -> list[Any]:
        operands = values
        if self._seen is not None:
            operands = tuple([convert(value) for convert, value in zip(self._seen, values, strict=True)])
        try:
            (self._function.accumulate if by > 0 else self._function.retract)(state[_ACCUMULATOR], *operands)
        except Exception as error:
            raise self._failed("accumulate" if by > 0 else "retract", operands) from error
        if self._retracts:
            state[_SUM] = (state[_SUM] + by * _hash_row(self._equality.key(values))) % _SUMS
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        accumulator = state[_ACCUMULATOR] if state else self._created()
        try:
            result = self._given(accumulator)
        except UserCodeError:
            raise
        except Exception as error:
            raise self._failed(self._gives, ()) from error
        return result

    #: the name of the method that returns the result
    _gives = "get_value"

    def _given(self, accumulator: Any) -> Any:
        return self._results.held(self._function.get_value(accumulator), self._refuse)

    def _refuse(self, index: int, value: object) -> None:
        self._functions.refuse(self._user, "an accumulator", value, self._results.data_type)

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state or (self._retracts and state[_SUM] == 0)

    def forget(self, key: Any) -> None:
        """See `Accumulator`."""
        if self._views is not None:
            self._views.clear(key)

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if self._views is None:
            return super().running(rows, states)
        views, keeps, goes, results = self._views, rows.keeps, rows.goes, []
        attached: set[int] = set()
        for row, (group, operands) in enumerate(zip(rows.groups, rows.operands, strict=True)):
            views.set_key(rows.keys[group])
            if not states[group]:
                states[group] = [views.begun(self._created()), 0]
            elif group not in attached:
                states[group][_ACCUMULATOR] = views.attach_views(states[group][_ACCUMULATOR])
            attached.add(group)
            if keeps is None or keeps[row]:
                self._changed(states[group], operands, -1 if goes is not None and goes[row] else 1)
            results.append(self.value(states[group]))
            if row in rows.ends and self.is_spent(states[group]):
                states[group] = self.create()
                attached.discard(group)
        try:
            for group in attached:
                views.set_key(rows.keys[group])
                states[group][_ACCUMULATOR] = views.taken_out(states[group][_ACCUMULATOR])
        except MisuseError as error:
            raise self._failed("accumulate", ()) from error
        return results

    def _failed(self, method: str, operands: tuple[Any, ...]) -> UserCodeError:
        return UserCodeError(self._functions.operator_name, operands or None, f"{method}() of {self._user}")


class UserTableAccumulator(UserAccumulator):
    """A user-defined table aggregate function: its result is a list of rows, in internal form."""

    _gives = "emit_value"

    def __init__(self, call: UserAggregateCall, retracts: bool, functions: OpenFunctions) -> None:
        super().__init__(call, retracts, functions)
        assert isinstance(call.type, RowType)
        self._names = call.type.field_names()
        self._columns = [Results(kind, functions.zone) for kind in call.type.field_types()]

    def _given(self, accumulator: Any) -> Any:
        emitted = [unpack_row(row, self._names) for row in iterate_rows(self._function.emit_value(accumulator))]
        return [tuple([self._field(index, value) for index, value in enumerate(fields)]) for fields in emitted]

    def _field(self, index: int, value: Any) -> Any:
        def refuse(_: int, refused: object) -> None:
            expected = f"{self._columns[index].data_type}, as column {self._names[index]} is"
            self._functions.refuse(self._user, "an accumulator", refused, expected)

        return self._columns[index].held(value, refuse)


def _hash_row(values: tuple[Any, ...]) -> int:
    """Hash a row in canonical form to a number. Equal rows have the same number in any process; others differ."""
    return int.from_bytes(blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8).digest())
