"""JSON strings."""

from __future__ import annotations

from typing import Final, Self

from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import LENGTH_MAX, DataType, VarCharType
from penstock.table.methods.operand import Operand, build_call
from penstock.table.methods.units import (
    JsonExistsOnError,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
)

_STRING: Final = VarCharType(LENGTH_MAX)


class Json(Operand):
    """JSON methods. Paths have SQL's syntax: `$.name`, `$[0]`."""

    def is_json(self, json_type: JsonType | None = None) -> Self:
        """Return whether the string is JSON, optionally of a given type."""
        return self._operated("IS JSON" if json_type is None else f"IS JSON {json_type.value}")

    def json_exists(self, path: object, on_error: JsonExistsOnError | None = None) -> Self:
        """Return whether a path finds a value. By default, FALSE if the path fails."""
        options = () if on_error is None else (f"{on_error.value} ON ERROR",)
        return self._called("JSON_EXISTS", path, options=options)

    def json_value(
        self,
        path: object,
        returning_type: DataType = _STRING,
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: object = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: object = None,
    ) -> Self:
        """Return the single value that a path finds. Defaults require DEFAULT as the behaviour on empty or error."""
        operands = [path]
        events = ((on_empty, default_on_empty, "EMPTY"), (on_error, default_on_error, "ERROR"))
        for behaviour, default, event in events:
            if behaviour is JsonValueOnEmptyOrError.DEFAULT:
                operands.append(default)
            elif default is not None:
                raise ValidationError(
                    f"json_value has a default and {behaviour.value} ON {event}: take JsonValueOnEmptyOrError.DEFAULT"
                )
        options = tuple(f"{behaviour.value} ON {event}" for behaviour, _, event in events)
        return self._new(build_call("JSON_VALUE", self, *operands, options=options, returns=returning_type))

    def json_query(
        self,
        path: object,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Self:
        """Return the object or array that a path finds, as JSON."""
        options = (wrapping_behavior.value, f"{on_empty.value} ON EMPTY", f"{on_error.value} ON ERROR")
        return self._called("JSON_QUERY", path, options=options)

    def json_quote(self) -> Self:
        """Quote the string as a JSON string."""
        return self._called("JSON_QUOTE")

    def json_unquote(self) -> Self:
        """Return the value of a JSON string."""
        return self._called("JSON_UNQUOTE")
