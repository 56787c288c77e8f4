"""The type of records projected to some of their fields."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import WrongValueError
from penstock.base.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types


def projected_type(type_info: TypeInformation | None, indexes: Sequence[int]) -> TypeInformation | None:
    """Return the type with only the fields at these positions; None if the fields of the type are unknown.

    Raises:
        ValueError: if a position is beyond the type's last field.
    """
    if not isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return None
    types = type_info.get_field_types()
    if max(indexes) >= len(types):
        raise WrongValueError(f"{type_info} has {len(types)} fields, so there is none at position {max(indexes)}")
    chosen = [types[index] for index in indexes]
    if isinstance(type_info, TupleTypeInfo):
        return Types.TUPLE(chosen)
    names = type_info.get_field_names()
    if len(set(indexes)) < len(indexes):
        return Types.ROW(chosen)
    return Types.ROW_NAMED([names[index] for index in indexes], chosen)
