"""Names of relations, and columns, as Penstock writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from dbt.adapters.base.column import Column
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import Policy


@dataclass
class PenstockQuotePolicy(Policy):
    """All parts of a name are quoted: names are case-sensitive, and many are keywords of Flink's SQL."""

    database: bool = True
    schema: bool = True
    identifier: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class PenstockRelation(BaseRelation):
    """A table or view of a database (dbt: schema) in a catalog (dbt: database)."""

    quote_policy: Policy = field(default_factory=PenstockQuotePolicy)
    quote_character: str = "`"
    require_alias: bool = False


#: dbt's names of types, and Flink's
TYPES: Final = {
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "INTEGER": "INT",
    "FLOAT": "DOUBLE",
    "NUMERIC": "DECIMAL(38, 18)",
    "TIMESTAMP": "TIMESTAMP(6)",
    "DATETIME": "TIMESTAMP(6)",
}


@dataclass
class PenstockColumn(Column):
    """A column. Its type is Flink's text, such as `DECIMAL(10, 2)`."""

    TYPE_LABELS: ClassVar[dict[str, str]] = {**Column.TYPE_LABELS, **TYPES}

    @property
    def quoted(self) -> str:
        """The name as SQL writes it."""
        return f"`{self.column}`"

    @property
    def data_type(self) -> str:
        """The type in a declaration."""
        return self.dtype

    def is_string(self) -> bool:
        """Whether it holds texts."""
        return self.dtype.upper().startswith(("STRING", "VARCHAR", "CHAR"))

    def is_numeric(self) -> bool:
        """Whether it holds decimals."""
        return self.dtype.upper().startswith("DECIMAL")

    def is_integer(self) -> bool:
        """Whether it holds integers."""
        return self.dtype.upper() in ("TINYINT", "SMALLINT", "INT", "BIGINT")

    def is_float(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.dtype.upper() in ("FLOAT", "DOUBLE")

    def string_size(self) -> int:
        """The greatest length of a text."""
        _, _, length = self.dtype.partition("(")
        return int(length.rstrip(")")) if length else 2147483647
