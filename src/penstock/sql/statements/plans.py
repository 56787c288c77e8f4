"""COMPILE PLAN, COMPILE AND EXECUTE PLAN, EXECUTE PLAN, and the files of compiled plans."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Write
from penstock.sql.parser import statements
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import RECOMPILES, TableSession
from penstock.sql.statements.insert import done, plan_insert


def plan_path(name: str) -> Path:
    """Return the path of a plan's file, given as a path or a `file:` URL. Raises `UnsupportedError` for other URLs."""
    url = urlsplit(name)
    if url.scheme in ("", "file"):
        return Path(unquote(url.path) if url.scheme else name)
    raise UnsupportedError(f"a compiled plan is a file of this machine, and {name!r} is none")


def read_plan(path: Path) -> str:
    """Return the text of a plan. Raises `ValidationError` if there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValidationError(f"Cannot load the plan file '{path}': {error.strerror}") from error


def store_plan(path: Path, text: str, overwrites: bool = False) -> None:
    """Write a plan, as a whole or not at all. Raises `ValidationError` if the file exists or cannot be written."""
    if path.exists() and not overwrites:
        raise ValidationError(
            f"Cannot overwrite the plan file '{path}'. Either manually remove the file or, if you're debugging your "
            "job, set the option 'table.plan.force-recompile' to true."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        written.write_text(f"{text}\n", encoding="utf-8")
        os.replace(written, path)
    except OSError as error:
        raise ValidationError(f"Cannot write the plan file '{path}': {error.strerror}") from error


def plan_writes(session: TableSession, statement: statements.Statement) -> list[Write]:
    """Return the plans of an INSERT or a statement set. Raises `ValidationError` for other statements."""
    if isinstance(statement, statements.Execute):
        statement = statement.statement
    match statement:
        case statements.Insert():
            inserts: Sequence[statements.Insert] = [statement]
        case statements.StatementSet():
            inserts = statement.inserts
        case _:
            raise ValidationError(
                "Unsupported SQL query! compilePlanSql() only accepts a single SQL statement of type INSERT, or a "
                "STATEMENT SET"
            )
    return [plan_insert(session, insert) for insert in inserts]


def _plan(session: TableSession, statement: statements.ExecutePlan) -> TableResult:
    path, planned = plan_path(statement.file), statement.statement
    if planned is not None:
        recompiles = session.config.read(RECOMPILES)
        exists = path.exists() and not recompiles
        if not exists or not (statement.executes or statement.if_not_exists):
            store_plan(path, session.compile(plan_writes(session, planned)), recompiles)
    if not statement.executes:
        return done()
    return session.write_compiled(session.load_compiled(read_plan(path)))


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.ExecutePlan: _plan,
}
