"""Words that methods of expressions take: units of time, and what JSON functions do in special cases."""

from __future__ import annotations

from enum import Enum


class TimeIntervalUnit(Enum):
    """A unit of time, or several from one down to another."""

    YEAR = "YEAR"
    YEAR_TO_MONTH = "YEAR_TO_MONTH"
    QUARTER = "QUARTER"
    MONTH = "MONTH"
    WEEK = "WEEK"
    DAY = "DAY"
    DAY_TO_HOUR = "DAY_TO_HOUR"
    DAY_TO_MINUTE = "DAY_TO_MINUTE"
    DAY_TO_SECOND = "DAY_TO_SECOND"
    HOUR = "HOUR"
    SECOND = "SECOND"
    HOUR_TO_MINUTE = "HOUR_TO_MINUTE"
    HOUR_TO_SECOND = "HOUR_TO_SECOND"
    MINUTE = "MINUTE"
    MINUTE_TO_SECOND = "MINUTE_TO_SECOND"


class TimePointUnit(Enum):
    """A unit in which points in time are told apart."""

    YEAR = "YEAR"
    MONTH = "MONTH"
    DAY = "DAY"
    HOUR = "HOUR"
    MINUTE = "MINUTE"
    SECOND = "SECOND"
    QUARTER = "QUARTER"
    WEEK = "WEEK"
    MILLISECOND = "MILLISECOND"
    MICROSECOND = "MICROSECOND"


class JsonType(Enum):
    """What a JSON text may be."""

    VALUE = "VALUE"
    SCALAR = "SCALAR"
    ARRAY = "ARRAY"
    OBJECT = "OBJECT"


class JsonExistsOnError(Enum):
    """What `json_exists` gives where the path fails."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    UNKNOWN = "UNKNOWN"
    ERROR = "ERROR"


class JsonValueOnEmptyOrError(Enum):
    """What `json_value` gives where the path finds nothing, or fails."""

    NULL = "NULL"
    ERROR = "ERROR"
    DEFAULT = "DEFAULT"


class JsonQueryWrapper(Enum):
    """When `json_query` puts what it finds into an array."""

    WITHOUT_ARRAY = "WITHOUT WRAPPER"
    CONDITIONAL_ARRAY = "WITH CONDITIONAL WRAPPER"
    UNCONDITIONAL_ARRAY = "WITH UNCONDITIONAL WRAPPER"


class JsonQueryOnEmptyOrError(Enum):
    """What `json_query` gives where the path finds nothing, or fails."""

    NULL = "NULL"
    EMPTY_ARRAY = "EMPTY ARRAY"
    EMPTY_OBJECT = "EMPTY OBJECT"
    ERROR = "ERROR"


class JsonOnNull(Enum):
    """What functions that make JSON do with NULL: keep it, or leave it out."""

    NULL = "NULL"
    ABSENT = "ABSENT"
