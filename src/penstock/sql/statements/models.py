"""CREATE, ALTER, DROP, DESCRIBE and SHOW of models.

SHOW CREATE MODEL hides secrets, such as the key of an endpoint, which Flink shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from penstock.base.errors import UnsupportedError, did_you_mean
from penstock.base.secrets import is_sensitive, shown_value
from penstock.sql.catalogs.catalog import Catalog, CatalogModel, ObjectPath
from penstock.sql.catalogs.columns import ResolvedSchema, Schema, resolve
from penstock.sql.catalogs.ddl import build_schema
from penstock.sql.data import types
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.parser import statements
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements import insert as results

Path = tuple[str, str, str]


def create(session: TableSession, statement: statements.Create) -> TableResult:
    """Run CREATE MODEL."""
    if statement.query is not None:
        _check_training(statement)
    if not statement.options:
        raise ValidationError("Model property list can not be empty.")
    if statement.outputs and not statement.inputs:
        raise ValidationError("Input column list can not be empty with non-empty output column list.")
    if statement.inputs and not statement.outputs:
        raise ValidationError("Output column list can not be empty with non-empty input column list.")
    inputs, outputs = (build_schema(statements.Elements(columns)) for columns in (statement.inputs, statement.outputs))
    model = CatalogModel(inputs, outputs, dict(statement.options), statement.comment)
    if statement.replaces:
        session.manager.drop_model(statement.path, statement.is_temporary, True)
    session.manager.create_model(statement.path, model, statement.is_temporary, statement.if_not_exists)
    return results.done()


def _check_training(statement: statements.Create) -> None:
    """Refuse CREATE MODEL … AS, which trains a model, with the checks that Flink makes."""
    for side, columns in (("input", statement.inputs), ("output", statement.outputs)):
        if columns:
            raise ValidationError(f"CREATE MODEL AS SELECT syntax does not support to specify explicit {side} columns.")
    raise UnsupportedError("CREATE MODEL AS SELECT is not supported: no provider trains models")


def alter(session: TableSession, statement: statements.Alter) -> TableResult:
    """Run ALTER MODEL."""
    manager = session.manager
    full_path = manager.qualified(statement.path)
    title = format_path(full_path)
    if manager.temporary_model(statement.path) is not None:
        raise ValidationError(f"Model {title} is a temporary model.")
    entry, may_be_missing = manager.find_model(statement.path), statement.if_exists
    if entry is None:
        if may_be_missing:
            return results.done()
        raise _missing(session, f"Model {title} doesn't exist", statement.path)
    model = entry[1]
    catalog, path = manager.catalog(full_path[0]), ObjectPath(*full_path[1:])
    match statement.verb:
        case "SET":
            if not statement.options:
                raise ValidationError("ALTER MODEL SET does not support empty option.")
            changed = {**model.options, **dict(statement.options)}
        case "RESET":
            if not statement.keys:
                raise ValidationError("ALTER MODEL RESET does not support empty key.")
            changed = {key: value for key, value in model.options.items() if key not in statement.keys}
        case _:
            catalog.rename_model(path, results.renamed_path(full_path, statement.renamed)[2])
            return results.done()
    catalog.alter_model(path, replace(model, options=changed))
    return results.done()


def drop(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP MODEL."""
    session.manager.drop_model(statement.path, statement.is_temporary, statement.if_exists)
    return results.done()


def describe(session: TableSession, path: tuple[str, ...]) -> TableResult:
    """Run DESCRIBE MODEL: one row for each column of the input and the output."""
    entry = session.manager.find_model(path)
    if entry is None:
        full_path = ".".join(session.manager.qualified(path))
        raise _missing(session, f"Model with the identifier '{full_path}' doesn't exist", path)
    rows = list(_columns(session, entry[1]))
    kinds: list[tuple[str, types.DataType]] = [
        ("name", results.STRING),
        ("type", results.STRING),
        ("null", types.BooleanType()),
        ("is input", types.BooleanType()),
        ("comment", results.STRING),
    ]
    if all(row[-1] is None for row in rows):
        return results.table(kinds[:-1], [row[:-1] for row in rows])
    return results.table(kinds, rows)


def _columns(session: TableSession, model: CatalogModel) -> Iterator[tuple[str, str, bool, bool, str | None]]:
    for schema, is_input in ((model.input_schema, True), (model.output_schema, False)):
        for column in resolved(session, schema).columns:
            kind = column.data_type
            yield column.name, str(kind.nullable()), kind.is_nullable, is_input, column.comment


def resolved(session: TableSession, schema: Schema) -> ResolvedSchema:
    """Return a side of a model with the types of its columns."""
    return resolve(schema, session.manager.calls())


def model_names(session: TableSession, catalog: Catalog, database: str) -> list[str]:
    """Return the names of a database's models, including temporary ones."""
    manager = session.manager
    is_current = (catalog.name, database) == (manager.current_catalog, manager.current_database)
    temporary = manager.list_temporary_models() if is_current else []
    return sorted({*catalog.list_models(database), *temporary})


def show_create(session: TableSession, path: tuple[str, ...], type_text: Callable[[types.DataType], str]) -> str:
    """Return the CREATE MODEL statement of a model, without its secrets. `type_text`: formats types."""
    entry = session.manager.find_model(path)
    if entry is None:
        title = format_path(session.manager.qualified(path))
        reason = f"Could not execute SHOW CREATE MODEL. Model with identifier {title} does not exist"
        raise _missing(session, reason, path)
    full_path, model = entry
    temporary = "TEMPORARY " if session.manager.temporary_model(path) is not None else ""
    lines = [f"CREATE {temporary}MODEL {format_path(full_path)}"]
    for word, schema in (("INPUT", model.input_schema), ("OUTPUT", model.output_schema)):
        columns = [
            f"{types.quoted(column.name)} {type_text(column.data_type)}"
            + (f" COMMENT {types.literal(column.comment)}" if column.comment else "")
            for column in resolved(session, schema).columns
        ]
        lines += [f"{word} ({', '.join(columns)})"] if columns else []
    lines += [f"COMMENT {types.literal(model.comment)}"] if model.comment else []
    if model.options:
        lines.append(results.with_text(visible_options(model.options)))
    return "\n".join(lines) + "\n"


def visible_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a model in the order of their keys, with secrets hidden. A number is no secret."""
    return {
        key: value if is_sensitive(key) and value.isdecimal() else shown_value(key, value)
        for key, value in sorted(options.items())
    }


def _missing(session: TableSession, reason: str, path: tuple[str, ...]) -> UnknownNameError:
    near = did_you_mean(path[-1], session.manager.model_names())
    return UnknownNameError(reason + (near or "."), name=path[-1])
