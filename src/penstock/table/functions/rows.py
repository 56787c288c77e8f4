"""Functions that construct and update rows and structured objects, and read their fields."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, IntegralType, RowField, RowType, StructuredType
from penstock.table.data.values import Datum, Kernel, to_full_array
from penstock.table.functions.definition import UNKNOWN, Call, Operands, ScalarFunction, scalar
from penstock.table.functions.lists import by_columns
from penstock.table.functions.signatures import ANY, takes, where
from penstock.table.functions.type_rules import is_text


def _row_type(call: Operands) -> DataType:
    """Return a row type. The options name its fields; by default they are f0, f1 and so on, as in the Table API."""
    names = call.options or tuple(f"f{index}" for index in range(len(call)))
    return RowType([RowField(name, data_type) for name, data_type in zip(names, call.types, strict=True)], False)


def _row(call: Call) -> Kernel:
    fields = list(arrow_type(call.result))
    return by_columns(lambda _: lambda *columns: pa.StructArray.from_arrays(columns, fields=fields))(call)


# --- fields ----------------------------------------------------------------------------------------------------------


def _composite(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, RowType) else None


def _position(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if not isinstance(data_type, IntegralType) or call.value(index) is UNKNOWN:
        return None
    assert isinstance(call.types[0], RowType)
    return data_type if 0 <= _number(call) < len(call.types[0].fields) else None


def _number(call: Operands) -> int:
    index = call.value(1)
    assert isinstance(index, int)  # checked by the signature
    return index


def _field_type(call: Operands) -> DataType:
    row = call.types[0]
    assert isinstance(row, RowType)
    field_type = row.fields[_number(call)].data_type
    return field_type.nullable() if row.is_nullable else field_type


def field_kernel(index: int) -> Kernel:
    """Return a kernel that reads a field of rows."""

    def kernel(row: Datum, _: Datum | None = None) -> Datum:
        return pc.struct_field(row, [index])

    return kernel


# --- structured objects ----------------------------------------------------------------------------------------------


def _text_literal(call: Operands, index: int, label: str) -> str:
    if not is_text(call.types[index]):
        raise ValidationError(f"{label} must be a character string that is not NULL, but was {call.types[index]}.")
    value = call.value(index)
    if not isinstance(value, str):
        raise ValidationError(f"{label} must be a literal character string that is not NULL.")
    return value


def _class_name(call: Operands, index: int) -> DataType | None:
    _text_literal(call, index, "The first argument, the name of the class,")
    return call.types[index]


def _names(call: Operands) -> list[str]:
    """Return the names of the fields being set."""
    return [
        _text_literal(call, index, f"The name of a field at position {index + 1}") for index in range(1, len(call), 2)
    ]


def _field_name(call: Operands, index: int) -> DataType | None:
    """Accept a string literal that names a field. Raises `ValidationError` if an earlier pair has the same name."""
    names = _names(call)
    name, before = names[index // 2], names[: index // 2]
    if name in before:
        raise ValidationError(f"The field name '{name}' at position {index + 1} is repeated.")
    return call.types[index]


def _known_field(call: Operands, index: int) -> DataType | None:
    row = call.types[0]
    if not isinstance(row, StructuredType):
        return None  # the first operand's check reports this
    data_type = _field_name(call, index)
    name = _names(call)[index // 2]
    if name not in row.field_names():
        raise ValidationError(
            f"The field name '{name}' at position {index + 1} is not part of the structured type. "
            f"It has: {', '.join(row.field_names())}."
        )
    return data_type


def _structured(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if not isinstance(data_type, StructuredType):
        raise ValidationError(f"The first argument must be a structured type, but was {data_type}.")
    return data_type


def _object_type(call: Operands) -> DataType:
    fields = [RowField(name, data_type) for name, data_type in zip(_names(call), call.types[2::2], strict=True)]
    return StructuredType(str(call.value(0)), fields)


def _updated_type(call: Operands) -> DataType:
    row = call.types[0]
    assert isinstance(row, StructuredType)
    changed = dict(zip(_names(call), call.types[2::2], strict=True))
    return StructuredType(
        row.class_name, [RowField(field.name, changed.get(field.name, field.data_type)) for field in row.fields]
    )


def _object(call: Call) -> Kernel:
    fields = list(arrow_type(call.result))

    def kernel(rows: int, _: Datum, *pairs: Datum) -> Datum:
        if not fields:
            return pa.array([{}] * rows, pa.struct([]))
        return pa.StructArray.from_arrays([to_full_array(value, rows) for value in pairs[1::2]], fields=fields)

    return kernel


def _update(call: Call) -> Kernel:
    assert isinstance(call.result, StructuredType)
    fields = list(arrow_type(call.result))
    pair_indices = {name: index for index, name in enumerate(_names(call.operands))}
    sources = [pair_indices.get(name) for name in call.result.field_names()]

    def update(row: pa.Array, *pairs: pa.Array) -> pa.Array:
        columns = [
            pc.struct_field(row, [index]) if pair_index is None else pairs[2 * pair_index + 1]
            for index, pair_index in enumerate(sources)
        ]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=row.is_null())

    return by_columns(lambda _: update)(call)


_KEY = where("<STRING>", _field_name)
_KNOWN_KEY = where("<STRING>", _known_field)
_OBJECT = where("<STRUCTURED_TYPE>", _structured)
_CLASS = where("<STRING>", _class_name)

FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "ROW",
        takes(ANY, repeated=1),
        _row_type,
        _row,
        "Creates a row of the values.",
        section="value construction",
        usage="ROW(value, ...)",
    ),
    scalar(
        "FIELD",
        takes(where("<COMPOSITE>", _composite), where("<INTEGER NOT NULL>", _position)),
        _field_type,
        lambda call: field_kernel(_number(call.operands)),
        "Returns the field of the row.",
        python_name="get",
        section="value access",
        usage="row.field",
    ),
    scalar(
        "OBJECT_OF",
        (takes(_CLASS), takes(_CLASS, _KEY, ANY, repeated=2)),
        _object_type,
        _object,
        "Creates an object of a structured type from its class name and the names and values of its fields.",
        section="structured types",
        usage="OBJECT_OF(class, name, value, ...)",
        takes_rows=True,
    ),
    scalar(
        "OBJECT_UPDATE",
        takes(_OBJECT, _KNOWN_KEY, ANY, repeated=2),
        _updated_type,
        _update,
        "Returns the object with new values for some of its fields.",
        section="structured types",
        usage="OBJECT_UPDATE(object, name, value, ...)",
    ),
)
