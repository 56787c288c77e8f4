"""Programs in the form that `tests.table.programs` reads, made of a simpler one; and as Flink's process takes them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from tests.table.beside_flink.turns import Turns
from tests.table.planned import create, manager_of
from tests.table.program_tables import MODES, SINK_MODE

from penstock.sql.catalogs.manager import CatalogManager
from penstock.sql.data import types
from penstock.sql.data.types import DataType
from penstock.sql.parser import parse_script, parse_statement, statements

PAUSE_MS = 150
PATIENCE_S = 30


def full(case: dict[str, Any]) -> dict[str, Any]:
    """A program with all that `Program` asks of one.

    In the simple form a table is `{name, columns, rows, mode?, options?}`, its columns being text, and instead of
    statements there may be a `query`, of which a sink is made.
    """
    case = {"config": {}, "setup_sql": [], "restore": False, "runs_in": ["streaming"], **case}
    case["sources"] = [_table(one, ("rows_before", "rows_after")) for one in case["sources"]]
    case["sinks"] = [
        _table(one, ("expected_before_strings", "expected_after_strings")) for one in case.get("sinks", [])
    ]
    if "query" in case:
        case["sinks"] = [_table(_sink_of(case), ("expected_before_strings", "expected_after_strings"))]
        case["sql"] = [f"INSERT INTO sink {case['query']}"]
    for sink in case["sinks"]:
        sink.setdefault("upserts_by_key", _find_key(sink))
    case.setdefault("run", [{"step": "SQL", "sql": text} for text in case.get("sql", ())])
    return case


def _table(table: dict[str, Any], rows: Sequence[str]) -> dict[str, Any]:
    table = {"options": {}, "mode": None, "primary_key": None, "compare": "changelog", "dedup_fields": None, **table}
    if "ddl" not in table:
        table["ddl"] = f"CREATE TABLE `{table['name']}` ({table['columns']})"
        table["primary_key"] = "PRIMARY KEY" if "PRIMARY KEY" in table["columns"] else None
    table.setdefault(rows[0], table.get("rows", []))
    table.setdefault(rows[1], [])
    if table["mode"] is not None and "changelog-mode" not in table["options"]:
        table["options"] = {**table["options"], "changelog-mode": table["mode"], SINK_MODE: table["mode"]}
    return table


def _find_key(sink: dict[str, Any]) -> list[int] | None:
    """The places of the primary key of a table that takes no rows before updates."""
    if "UB" in sink["options"].get(SINK_MODE, ""):
        return None
    found = manager_of(sink["ddl"]).find((sink["name"],))
    assert found is not None
    names = [column.name for column in found[1].schema.columns]
    return [names.index(name) for name in found[1].schema.primary_key] or None


def _sink_of(case: dict[str, Any]) -> dict[str, Any]:
    """A table with the columns of the query; where it is no query, one that nothing fits."""
    try:
        statement = parse_statement(case["query"])
        assert isinstance(statement, statements.QueryStatement)
        schema = manager_of_case(case).analyser().query(statement.query).schema
        columns = ", ".join(f"`c{place}` {kind.nullable()}" for place, kind in enumerate(schema.types))
    except Exception:  # noqa: BLE001 - running it shows what is wrong
        columns = "`c0` INT"
    return {"name": "sink", "columns": columns}


def manager_of_case(case: dict[str, Any]) -> CatalogManager:
    """A manager that knows the sources, and the views."""
    manager = manager_of(*(one["ddl"] for one in case["sources"]))
    for text in case["setup_sql"] or ():
        create(manager, text)
    return manager


def turns_of(case: dict[str, Any]) -> Turns:
    """In which order the rows of all tables come: `order` has the table of each row; else table after table."""
    sizes = {one["name"]: len(one["rows_before"]) + len(one["rows_after"]) for one in case["sources"]}
    order = list(case.get("order", ()))
    for name, size in sizes.items():
        order += [name] * (size - order.count(name))
    return Turns(order)


def for_flink(case: dict[str, Any], explains: bool) -> dict[str, Any]:
    """The program as `Oracle.java` takes it."""
    turns = turns_of(case)
    manager = manager_of(*(one["ddl"] for one in case["sources"]))
    rows = {one["name"]: _rows(one, manager, turns.of.get(one["name"], [])) for one in case["sources"]}
    steps = [step["sql"] for step in case["run"] if "sql" in step]
    return {
        "rows": rows,
        "setup": [*map(_ddl, (*case["sources"], *case["sinks"])), *(case["setup_sql"] or ())],
        "statements": [text for step in steps for text in _texts(step)],
        "config": case["config"] or {},
        "batch": "streaming" not in case["runs_in"],
        "pause_ms": PAUSE_MS,
        "patience_s": PATIENCE_S,
        "explains": explains,
    }


def _texts(step: str) -> list[str]:
    """The statements of a script, as far as they are separate ones."""
    try:
        return step.split(";\n") if len(parse_script(step)) > 1 else [step]
    except Exception:  # noqa: BLE001 - Flink shall say so, too
        return [step]


def _ddl(table: dict[str, Any]) -> str:
    options = {"connector": "oracle", "format": "json", "json.timestamp-format.standard": "ISO-8601"}
    is_sink = "expected_before_strings" in table
    mode = table["options"].get(SINK_MODE if is_sink else "changelog-mode") or table.get("mode")
    kinds = {row[0] for part in ("rows_before", "rows_after") for row in table.get(part) or ()}
    if mode is None and kinds - {"+I"}:
        mode = ",".join(MODES[kind] for kind in sorted(kinds | {"+I"}))
    if table["options"].get("sink-insert-only") == "true":
        mode = "I"
    if mode:
        options["changelog-mode"] = mode
    for name in ("source.produces-delete-by-key", "sink.supports-delete-by-key"):
        if name in table["options"]:
            options[name] = table["options"][name]
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"{table['ddl']} WITH ({pairs})"


def _rows(source: dict[str, Any], manager: CatalogManager, turns: Sequence[int]) -> list[list[Any]]:
    found = manager.find((source["name"],))
    assert found is not None
    columns = [column for column in manager.resolved(found[1]).columns if column.is_persisted()]
    rows = source["rows_before"] + source["rows_after"]
    return [
        [
            row[0],
            {column.name: _json(value, column.data_type) for column, value in zip(columns, row[1:], strict=False)},
            turn,
        ]
        for row, turn in zip(rows, turns, strict=True)
    ]


def _json(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    mark, inner = (value["$"], value["v"]) if isinstance(value, dict) and "$" in value else (None, value)
    match kind:
        case types.RowType(fields=fields):
            values = inner.values() if isinstance(inner, dict) else inner
            return {field.name: _json(one, field.data_type) for field, one in zip(fields, values, strict=True)}
        case types.MultisetType():
            return dict(inner)
        case types.ArrayType(element_type=element):
            return [_json(one, element) for one in inner]
        case types.MapType(value_type=item):
            pairs = inner.items() if isinstance(inner, dict) else inner
            return {str(key): _json(one, item) for key, one in pairs}
        case types.BinaryType() | types.VarBinaryType():
            return base64.b64encode(bytes.fromhex(inner) if mark == "bytes" else inner.encode()).decode()
        case types.TimestampType():
            return str(inner).replace(" ", "T")
        case types.LocalZonedTimestampType():
            return f"{str(inner).replace(' ', 'T').removesuffix('Z')}Z"
        case types.CharType() | types.VarCharType():
            return str(inner)
        case _:
            return inner
