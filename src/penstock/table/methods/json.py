"""JSON in texts."""

from __future__ import annotations

from typing import Final, Self

from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import LENGTH_MAX, DataType, VarCharType
from penstock.table.methods.operand import Operand, call_of
from penstock.table.methods.units import (
    JsonExistsOnError,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
)

_STRING: Final = VarCharType(LENGTH_MAX)


class Json(Operand):
    """What there is for JSON. Paths are those of SQL: `$.name`, `$[0]`."""

    def is_json(self, json_type: JsonType | None = None) -> Self:
        """Whether the text is JSON, or JSON of a kind."""
        return self._operated("IS JSON" if json_type is None else f"IS JSON {json_type.value}")

    def json_exists(self, path: object, on_error: JsonExistsOnError | None = None) -> Self:
        """Whether a path finds something. A path that fails counts as FALSE unless it is said otherwise."""
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
        """The single value that a path finds. Defaults need DEFAULT for where there is nothing, or an error."""
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
        return self._new(call_of("JSON_VALUE", self, *operands, options=options, returns=returning_type))

    def json_query(
        self,
        path: object,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Self:
        """The object or array that a path finds, as JSON."""
        options = (wrapping_behavior.value, f"{on_empty.value} ON EMPTY", f"{on_error.value} ON ERROR")
        return self._called("JSON_QUERY", path, options=options)

    def json_quote(self) -> Self:
        """The text as a string of JSON, in quotes."""
        return self._called("JSON_QUOTE")

    def json_unquote(self) -> Self:
        """The text that a string of JSON stands for."""
        return self._called("JSON_UNQUOTE")
