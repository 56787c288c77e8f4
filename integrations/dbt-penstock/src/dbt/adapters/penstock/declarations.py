"""The texts of SQL that the adapter writes and reads: names, literals, options, declarations of tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

_OPTION: Final = re.compile(r"^  '((?:[^']|'')*)' = '((?:[^']|'')*)',?$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^COMMENT '((?:[^']|'')*)'", re.MULTILINE)
_ATTRIBUTE: Final = re.compile(r" \*(ROWTIME|PROCTIME)\*$")


def quoted(*names: str) -> str:
    """Return a name of SQL."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def literal(text: str) -> str:
    """Return a text as a literal."""
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


def value(content: Any, data_type: str) -> str:
    """Return a value of a seed as SQL."""
    if content is None:
        return f"CAST(NULL AS {data_type})"
    text = content.isoformat(sep=" ") if isinstance(content, datetime) else str(content)
    if isinstance(content, bool):
        text = text.upper()
    elif not isinstance(content, int | Decimal | float):
        text = literal(text)
    return f"CAST({text} AS {data_type})" if isinstance(content, str | date | Decimal | float) else text


def plain_type(data_type: str) -> str:
    """Return a type of DESCRIBE as a declaration has it: without the mark of a time attribute."""
    return _ATTRIBUTE.sub("", data_type)


def options_of(create_table: str) -> dict[str, str]:
    """Return the options in the text of SHOW CREATE TABLE."""
    return {_unquoted(key): _unquoted(text) for key, text in _OPTION.findall(create_table)}


def comment_of(create_table: str) -> str:
    """Return the comment in the text of SHOW CREATE TABLE or SHOW CREATE VIEW."""
    match = _COMMENT.search(create_table)
    return _unquoted(match[1]) if match else ""


def _unquoted(text: str) -> str:
    return text.replace("''", "'")


def with_clause(options: Mapping[str, Any]) -> str:
    """Return WITH and options, as texts."""
    inner = ", ".join(f"{literal(str(key))} = {literal(option_text(text))}" for key, text in options.items())
    return f"WITH ({inner})"


def option_text(option: Any) -> str:
    """Return the value of an option of a YAML file as Flink writes it."""
    return str(option).lower() if isinstance(option, bool) else str(option)


@dataclass(frozen=True)
class Declaration:
    """A table, as CREATE TABLE declares it.

    Attributes:
        columns: names and types, or the whole text of a computed column.
        options: what WITH says.
        primary_key: the columns of the primary key.
        watermark: the text behind WATERMARK FOR.
        partitioned_by: the columns of PARTITIONED BY.
        comment: the comment.
    """

    columns: Sequence[tuple[str, str]]
    options: Mapping[str, str]
    primary_key: Sequence[str] = ()
    watermark: str = ""
    partitioned_by: Sequence[str] = ()
    comment: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)

    def create(self, name: str, temporary: bool = False, if_not_exists: bool = False) -> str:
        """Return the statement that creates the table under a name, as SQL writes it."""
        kind = "TEMPORARY TABLE" if temporary else "TABLE"
        condition = " IF NOT EXISTS" if if_not_exists else ""
        return f"CREATE {kind}{condition} {name} {self.text()}"

    def text(self) -> str:
        """Return all but the name."""
        parts = [self._column(name, data_type) for name, data_type in self.columns]
        if self.watermark:
            parts.append(f"WATERMARK FOR {self.watermark}")
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({names(self.primary_key)}) NOT ENFORCED")
        text = f"(\n  {', '.join(parts)}\n)"
        if self.comment:
            text += f" COMMENT {literal(self.comment)}"
        if self.partitioned_by:
            text += f" PARTITIONED BY ({names(self.partitioned_by)})"
        return f"{text} {with_clause(self.options)}" if self.options else text

    def _column(self, name: str, data_type: str) -> str:
        text = f"{quoted(name)} {data_type}"
        if name in self.primary_key and not data_type.upper().endswith("NOT NULL"):
            text += " NOT NULL"
        comment = self.comments.get(name)
        return f"{text} COMMENT {literal(comment)}" if comment else text


def names(columns: Iterable[str]) -> str:
    """Return names with commas between them."""
    return ", ".join(quoted(column) for column in columns)
