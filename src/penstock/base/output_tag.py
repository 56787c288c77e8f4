"""Side output tags."""

from __future__ import annotations

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation

__all__ = ["OutputTag"]


class OutputTag:
    """Names a side output and, if known, the type of its records.

    Tags are equal if their names are; the type is only descriptive.

    Args:
        tag_id: the name, not empty.
        type_info: the type of the records; None for any.

    Raises:
        ValueError: if the name is empty.
        TypeError: if the name is not a string, or `type_info` is not a TypeInformation.

    Examples:
        >>> from penstock.common import OutputTag, Types
        >>> late = OutputTag("late", Types.STRING())
        >>> late == OutputTag("late")
        True
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: TypeInformation | None = None) -> None:
        if not isinstance(tag_id, str):
            raise WrongTypeError(f"the name of an OutputTag must be a str, not {type(tag_id).__name__}")
        if not tag_id:
            raise WrongValueError("the name of an OutputTag must not be empty")
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise WrongTypeError(f"the type of an OutputTag must be a TypeInformation, not {type(type_info).__name__}")
        self.tag_id = tag_id
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        return self.tag_id == other.tag_id if isinstance(other, OutputTag) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        suffix = "" if self.type_info is None else f", {self.type_info!r}"
        return f"OutputTag({self.tag_id!r}{suffix})"
