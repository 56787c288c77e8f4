"""`TableResult`: the result of a statement, its kind, its rows, the job that produces them, and their printed form.

The format of a value is Flink's: the text of CAST to STRING, and bytes as literals. `Tableau` prints a bordered table,
as in Flink's tableau style, and `RawContent` the bare content.
"""

from __future__ import annotations

import datetime
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Final, Protocol

from penstock.base.errors import WrongTimeError
from penstock.base.types import Row, RowKind
from penstock.codecs.variant import double_text, float_text
from penstock.drivers.running_job import JobClient
from penstock.sql.catalogs.columns import ResolvedSchema, TableSchema
from penstock.sql.data import types
from penstock.sql.data.types import DataType
from penstock.sql.executor import ChangelogRow, Job
from penstock.sql.logical.nodes import RowSchema

__all__ = ["CloseableIterator", "ResultKind", "TableResult"]


class ResultKind(Enum):
    """The kind of a statement's result.

    Examples:
        >>> from penstock.table import EnvironmentSettings, ResultKind, TableEnvironment
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> t_env.execute_sql("CREATE DATABASE shop").get_result_kind() is ResultKind.SUCCESS
        True
        >>> t_env.execute_sql("SHOW DATABASES").get_result_kind() is ResultKind.SUCCESS_WITH_CONTENT
        True
    """

    #: the statement succeeded, such as DDL
    SUCCESS = 0
    #: the result has rows: those of a query, SHOW or DESCRIBE, or the counts of INSERT
    SUCCESS_WITH_CONTENT = 1


_EPOCH: Final = datetime.datetime(1970, 1, 1)


def format_value(value: Any, data_type: DataType, null: str = "NULL") -> str:
    """Format an external value. `null`: the text for None at the top level; nested values always use `NULL`.

    Texts are not formatted, whatever the type: results of a gateway consist of texts.
    """
    if value is None:
        return null
    if isinstance(value, str):
        return value
    match data_type:
        case types.BooleanType():
            return "TRUE" if value else "FALSE"
        case types.FloatType():
            return float_text(value)
        case types.DoubleType():
            return double_text(value)
        case types.DecimalType():
            return f"{value:f}"
        case types.BinaryType() | types.VarBinaryType():
            return f"x'{bytes(value).hex()}'"
        case types.TimeType(precision=precision):
            return f"{value.replace(microsecond=0)}{_fraction(value.microsecond, precision)}"
        case types.TimestampType(precision=precision) | types.LocalZonedTimestampType(precision=precision):
            return f"{value.replace(microsecond=0, tzinfo=None)}{_fraction(value.microsecond, precision)}"
        case types.DayTimeIntervalType():
            return _days_and_time(value)
        case types.YearMonthIntervalType():
            return f"{'-' if value < 0 else '+'}{abs(value) // 12}-{abs(value) % 12:02}"
        case types.MultisetType(element_type=element):
            return _entries((format_value(member, element), str(count)) for member, count in value.items())
        case types.ArrayType(element_type=element):
            return f"[{', '.join(format_value(member, element) for member in value)}]"
        case types.MapType(key_type=key, value_type=item) if isinstance(value, Mapping):
            return _entries(
                (format_value(entry_key, key), format_value(other, item)) for entry_key, other in value.items()
            )
        case types.RowType():
            parts = [
                format_value(field_value, kind)
                for field_value, kind in zip(value, data_type.field_types(), strict=True)
            ]
            if isinstance(data_type, types.StructuredType):
                parts = [f"{name}={part}" for name, part in zip(data_type.field_names(), parts, strict=True)]
            return f"({', '.join(parts)})"
        case _:
            return str(value)


def _entries(pairs: Any) -> str:
    return "{" + ", ".join(f"{key}={other}" for key, other in pairs) + "}"


def _fraction(microseconds: int, digits: int) -> str:
    return f".{microseconds:06}000"[: digits + 1] if digits else ""


def _days_and_time(value: datetime.timedelta) -> str:
    milliseconds = value // datetime.timedelta(milliseconds=1)
    sign, milliseconds = ("-" if milliseconds < 0 else "+"), abs(milliseconds)
    days, of_day = divmod(milliseconds, 86_400_000)
    return f"{sign}{days} {(_EPOCH + datetime.timedelta(milliseconds=of_day)).time().isoformat('milliseconds')}"


NULL_TEXT: Final = "<NULL>"
ROW_KIND: Final = "op"
_CUT: Final = "..."
#: receives a line including its line end
Write = Callable[[str], object]


class PrintStyle(Protocol):
    """A style for printing rows."""

    def print(self, rows: Iterable[ChangelogRow], write: Write) -> None:
        """Print all rows."""


@dataclass(frozen=True, slots=True)
class RawContent:
    """Prints comma-separated values without borders."""

    schema: RowSchema

    def print(self, rows: Iterable[ChangelogRow], write: Write) -> None:
        """See `PrintStyle`."""
        for _, values in rows:
            texts = (
                format_value(value, kind, NULL_TEXT) for value, kind in zip(values, self.schema.types, strict=True)
            )
            write(", ".join(texts) + "\n")


@dataclass(frozen=True, slots=True)
class Tableau:
    """Prints a bordered table, followed by the number of rows.

    `fits_rows`: size columns to their contents, which reads all rows first; otherwise size them to their types.
    `width_max`: truncate longer values. `counts_received`: print the number of received rows, as a streaming client
    does.
    """

    schema: RowSchema
    fits_rows: bool = False
    shows_kinds: bool = False
    width_max: int = 30
    null: str = NULL_TEXT
    counts_received: bool = False

    def print(self, rows: Iterable[ChangelogRow], write: Write) -> None:
        """See `PrintStyle`."""
        lines: Iterator[list[str]] = map(self._texts, rows)
        names = [ROW_KIND] * self.shows_kinds + self.schema.names
        if self.fits_rows:
            buffered = list(lines)
            widths, lines = self._compute_widths(names, buffered), iter(buffered)
        else:
            widths = [len(ROW_KIND)] * self.shows_kinds + [self._width(*pair) for pair in self._columns()]
        first = next(lines, None)
        if first is None:
            write(self._nothing())
            return
        border = "+" + "".join("-" * (width + 2) + "+" for width in widths) + "\n"
        write(f"{border}{_line(names, widths)}{border}")
        write(_line(first, widths))
        count = 1
        for line in lines:
            write(_line(line, widths))
            count += 1
        write(border + self._sum(count))

    def _nothing(self) -> str:
        return "Received a total of 0 row\n" if self.counts_received else "Empty set\n"

    def _sum(self, count: int) -> str:
        counted = f"{count} {'row' if count == 1 else 'rows'}"
        return f"Received a total of {counted}\n" if self.counts_received else f"{counted} in set\n"

    def _texts(self, row: ChangelogRow) -> list[str]:
        kind, values = row
        texts = [format_value(value, kind, self.null) for value, kind in zip(values, self.schema.types, strict=True)]
        return [kind, *texts] if self.shows_kinds else texts

    def _columns(self) -> Iterable[tuple[str, DataType]]:
        return zip(self.schema.names, self.schema.types, strict=True)

    def _compute_widths(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
        widths = [
            max([display_width(name), *(display_width(row[index]) for row in rows)]) for index, name in enumerate(names)
        ]
        return [max(min(width, self.width_max), len(name)) for width, name in zip(widths, names, strict=True)]

    def _width(self, name: str, data_type: DataType) -> int:
        width = type_width(data_type)
        return max(len(name), len(self.null), self.width_max if width is None else width)


def type_width(data_type: DataType) -> int | None:
    """Return the maximum width of a type's values, or None if it is unbounded."""
    match data_type:
        case types.TinyIntType():
            return 4
        case types.SmallIntType():
            return 6
        case types.IntType():
            return 11
        case types.BigIntType():
            return 20
        case types.DecimalType(precision=precision):
            return precision + 2
        case types.BooleanType():
            return 5
        case types.DateType():
            return 10
        case types.TimeType(precision=precision):
            return precision + 9 if precision else 8
        case types.TimestampType(precision=precision) | types.LocalZonedTimestampType(precision=precision):
            return precision + 20 if precision else 19
        case _:
            return None


def display_width(text: str) -> int:
    """Return how many terminal columns a text takes: wide characters take two."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "FW" for char in text)


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "".join(f" {_fitted(text, width)} |" for text, width in zip(texts, widths, strict=True)) + "\n"


def _fitted(text: str, width: int) -> str:
    """Right-align a text to `width` columns, and truncate it if it is longer."""
    text_width = display_width(text)
    if text_width <= width:
        return " " * (width - text_width) + text
    prefix, used_width = "", len(_CUT)
    for char in text:
        used_width += display_width(char)
        if used_width > width:
            break
        prefix += char
    return " " * (width - display_width(prefix) - len(_CUT)) + prefix + _CUT


_KINDS: Final = {kind.short_string: kind for kind in RowKind}


class CloseableIterator:
    """Iterates over result rows as they arrive. Closing it (or leaving its `with` block) stops the query."""

    def __init__(self, rows: Iterator[ChangelogRow], on_close: Callable[[], None] | None = None) -> None:
        self._rows = rows
        self._on_close = on_close

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Row:
        """Wait for the next row and return it. Raises the job's error if it failed."""
        kind, values = next(self._rows)
        return Row.of_kind(_KINDS[kind], *values)

    def next(self) -> Row:
        """Wait for the next row and return it. Raises StopIteration at the end, and the job's error if it failed."""
        return self.__next__()

    def close(self) -> None:
        """Stop the query if it still runs."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()


class TableResult:
    """The result of a statement. The rows of a query can be read once, by `collect` or `print`.

    Args:
        result_kind: whether there are rows.
        schema: the columns of the rows.
        rows: returns the rows.
        style: how to print them.
        job: the job that produces them, if any.
        on_close: stops the query.
        held: returns the rows of a query with internal values.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> query = "SELECT * FROM (VALUES ('tea', 2)) AS orders (drink, cups)"
        >>> t_env.execute_sql(query).print()
        +----+--------------------------------+-------------+
        | op |                          drink |        cups |
        +----+--------------------------------+-------------+
        | +I |                            tea |           2 |
        +----+--------------------------------+-------------+
        1 row in set
    """

    def __init__(
        self,
        result_kind: ResultKind,
        schema: ResolvedSchema,
        rows: Callable[[], Iterator[ChangelogRow]],
        style: PrintStyle,
        job: Job | None = None,
        on_close: Callable[[], None] | None = None,
        held: Callable[[], Iterator[ChangelogRow]] | None = None,
    ) -> None:
        self._held = held
        self._result_kind = result_kind
        self._schema = schema
        self._rows = rows
        self._style = style
        self._job = job
        self._on_close = on_close
        self._is_read = False

    def get_result_kind(self) -> ResultKind:
        """Return whether there are rows."""
        return self._result_kind

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns of the rows."""
        return self._schema

    def get_table_schema(self) -> TableSchema:
        """Return the column names and types in the older form; `get_resolved_schema` has more detail."""
        names = self._schema.get_column_names()
        return TableSchema(names, self._schema.get_column_data_types())

    def get_job_client(self) -> JobClient | None:
        """Return the client of the job, or None for a statement without a job.

        Examples:
            >>> result = t_env.execute_sql(query)
            >>> result.get_job_client() is None, t_env.execute_sql("SHOW CATALOGS").get_job_client() is None
            (False, True)
        """
        return None if self._job is None else self._job.client()

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the result is available. All rows remain for `collect` and `print`.

        A query waits for its first row or its end, an INSERT for the end of its job. Other statements have their
        results immediately.

        Args:
            timeout_ms: the longest time to wait, in milliseconds; None for no limit.

        Raises:
            CallTimeoutError: if the result is not available by then.
            JobExecutionError: if the job fails first.

        Examples:
            >>> t_env.execute_sql(query).wait(timeout_ms=60_000)
        """
        if self._job is not None:
            self._job.wait(timeout_ms)

    def collect(self) -> CloseableIterator:
        """Return the rows as they arrive. The row counts of an INSERT are available when its job ends.

        Raises:
            WrongTimeError: if the rows of a query were requested before.

        Examples:
            >>> with t_env.execute_sql(query).collect() as rows:
            ...     for drink, cups in rows:
            ...         print(drink, cups)
            tea 2
        """
        return CloseableIterator(self._take(), self._on_close)

    def held_rows(self) -> Iterator[ChangelogRow]:
        """Return the rows of a query as they arrive, with internal values (`penstock.sql.data.arrow`).

        Those of other statements are the same as in `collect`.

        Raises:
            WrongTimeError: if the rows of a query were requested before.
        """
        rows = self._take()
        return rows if self._held is None else self._held()

    def cancel(self) -> None:
        """Stop the query if it still runs; the job of an INSERT goes on."""
        if self._on_close is not None:
            self._on_close()

    def print(self) -> None:
        """Print the rows as they arrive, until the end.

        Raises:
            WrongTimeError: if the rows of a query were requested before.

        Examples:
            >>> t_env.execute_sql("SHOW CATALOGS").print()
            +-----------------+
            |    catalog name |
            +-----------------+
            | default_catalog |
            +-----------------+
            1 row in set
        """
        self._style.print(self._take(), sys.stdout.write)
        sys.stdout.flush()

    def _take(self) -> Iterator[ChangelogRow]:
        if self._is_read and self._on_close is not None:
            raise WrongTimeError("the rows of a query come once, and they were asked for before: run the query again")
        self._is_read = True
        return self._rows()
