"""A database that changes at random, as a script for the `values` source, with what it has in the end."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

#: The types of columns, each with the ones that it widens to.
TYPES = {
    "INT": ("BIGINT",),
    "BIGINT": (),
    "STRING": (),
    "FLOAT": ("DOUBLE",),
    "DOUBLE": (),
    "BOOLEAN": (),
    "DECIMAL(8, 2)": ("DECIMAL(12, 2)",),
    "DECIMAL(12, 2)": (),
    "DATE": (),
    "TIMESTAMP(6)": (),
}


@dataclass
class Table:
    """A table: its columns with their types, its key, and its rows by key."""

    columns: dict[str, str]
    key: tuple[str, ...]
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)


class Database:
    """Changes at random. `lines` has each change, in order."""

    def __init__(self, chance: random.Random, types: tuple[str, ...] = tuple(TYPES)) -> None:
        self.chance = chance
        self.tables: dict[str, Table] = {}
        self.lines: list[dict[str, Any]] = []
        self._types = types
        self._number = 0

    def _next(self) -> int:
        self._number += 1
        return self._number

    def create(self, name: str, key: tuple[str, ...] = ("id",), width: int | None = None) -> None:
        columns = dict.fromkeys(key, "INT")
        columns |= {"name": "STRING", "n": "INT"}
        for index in range(self.chance.randint(0, 2) if width is None else width):
            columns[f"c{index}"] = self.chance.choice(self._types)
        self.tables[name] = Table(columns, key)
        declared = {c: f"{kind} NOT NULL" if c in key else kind for c, kind in columns.items()}
        self.lines.append({"create": name, "columns": declared, "primary-key": list(key)})

    def value(self, kind: str) -> Any:
        chance = self.chance
        if chance.random() < 0.1:
            return None
        match kind:
            case "INT":
                return chance.randint(-1000, 1000)
            case "BIGINT":
                return chance.randint(-(2**62), 2**62)
            case "STRING":
                return "".join(chance.choices("abcdeXYZ äß'\"", k=chance.randint(0, 6)))
            case "FLOAT" | "DOUBLE":
                return chance.randint(-9999, 9999) / 8
            case "BOOLEAN":
                return chance.random() < 0.5
            case "DATE":
                return f"20{chance.randint(10, 29)}-0{chance.randint(1, 9)}-1{chance.randint(0, 9)}"
            case "TIMESTAMP(6)":
                return f"2024-0{chance.randint(1, 9)}-11 10:11:12.{chance.randint(1, 999999):06d}"
            case _:
                return f"{chance.randint(-99999, 99999) / 100:.2f}"

    def _row(self, table: Table) -> dict[str, Any]:
        row = {name: self.value(kind) for name, kind in table.columns.items()}
        return row | {name: self._next() if name == table.key[0] else self.chance.randint(0, 3) for name in table.key}

    def insert(self, name: str) -> None:
        table = self.tables[name]
        row = self._row(table)
        table.rows[tuple(row[k] for k in table.key)] = row
        self.lines.append({"insert": name, "row": dict(row)})

    def change_row(self, name: str) -> None:
        """Update or delete a row, or insert one."""
        table = self.tables[name]
        if not table.rows or self.chance.random() < 0.4:
            self.insert(name)
            return
        key = self.chance.choice(list(table.rows))
        before = table.rows.pop(key)
        if self.chance.random() < 0.3:
            self.lines.append({"delete": name, "row": dict(before)})
            return
        after = self._row(table)
        if self.chance.random() < 0.8:
            after |= dict(zip(table.key, key, strict=True))  # otherwise the key changes
        table.rows[tuple(after[k] for k in table.key)] = after
        self.lines.append({"update": name, "before": dict(before), "after": dict(after)})

    def change_schema(self, name: str, kinds: tuple[str, ...] = ("add", "drop", "rename", "alter")) -> None:
        table, chance = self.tables[name], self.chance
        free = [column for column in table.columns if column not in (*table.key, "name", "n")]
        kind = chance.choice(kinds)
        if kind == "add" or not free:
            column, data_type = f"x{self._next()}", chance.choice(self._types)
            line: dict[str, Any] = {"add-column": name, "column": {column: data_type}}
            place = chance.random()
            names = list(table.columns)
            at = len(names)
            if place < 0.2:
                line["first"], at = True, 0
            elif place < 0.5:
                at = chance.randint(1, len(names))
                line["after"] = names[at - 1]
            names.insert(at, column)
            table.columns = {each: table.columns.get(each, data_type) for each in names}
            for row in table.rows.values():
                row[column] = None
            self.lines.append(line)
        elif kind == "drop":
            column = chance.choice(free)
            del table.columns[column]
            for row in table.rows.values():
                del row[column]
            self.lines.append({"drop-column": name, "name": column})
        elif kind == "rename":
            column, new = chance.choice(free), f"r{self._next()}"
            table.columns = {new if each == column else each: of for each, of in table.columns.items()}
            for key, row in table.rows.items():
                table.rows[key] = {new if each == column else each: value for each, value in row.items()}
            self.lines.append({"rename-column": name, "name": column, "new-name": new})
        else:
            column = chance.choice(free)
            wider = TYPES[table.columns[column]]
            if not wider:
                return
            table.columns[column] = chance.choice([each for each in wider if each in self._types] or [""])
            if not table.columns[column]:
                raise AssertionError("the types do not include what they widen to")
            self.lines.append({"alter-column": name, "column": {column: table.columns[column]}})

    def truncate(self, name: str) -> None:
        self.tables[name].rows.clear()
        self.lines.append({"truncate": name})

    def drop(self, name: str) -> None:
        del self.tables[name]
        self.lines.append({"drop-table": name})

    def text(self, begin: int = 0, end: int | None = None) -> str:
        """The lines as JSON."""
        return "".join(json.dumps(line) + "\n" for line in self.lines[begin:end])


def plain(value: Any) -> Any:
    """A value of a target as the script has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def comparable(kind: str, value: Any) -> Any:
    """A value of the script in a form that is the same for equal values of a type."""
    if value is None:
        return None
    if kind == "TIMESTAMP(6)":
        return value[:26].rstrip("0")
    return float(value) if kind in ("FLOAT", "DOUBLE") else value
