"""`CompiledPlan`: the optimised plan of a job, which can be kept and run again; `PlanReference`: where one is."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements.plans import read_plan, store_plan
from penstock.table.explain_detail import ExplainDetail, detail_names

__all__ = ["CompiledPlan", "PlanReference"]


@dataclass(frozen=True)
class PlanReference:
    """A compiled plan in a file, or as JSON.

    Examples:
        >>> from penstock.table import PlanReference
        >>> PlanReference.from_file("/plans/orders.json").file.name
        'orders.json'
    """

    file: Path | None = None
    content: str | None = None

    @staticmethod
    def from_file(path: str | Path) -> PlanReference:
        """Refer to a plan in a file."""
        return PlanReference(file=Path(path))

    @staticmethod
    def from_json_string(json_string: str) -> PlanReference:
        """Refer to a plan that is JSON."""
        return PlanReference(content=json_string)

    def read(self) -> str:
        """Return the plan as JSON. Raises `ValidationError` if its file does not exist."""
        if self.content is not None:
            return self.content
        assert self.file is not None
        return read_plan(self.file)


class CompiledPlan:
    """The optimised plan of a job that writes into tables; it can be kept as JSON, and be run by a later release.

    `TableEnvironment.compile_plan_sql`, `load_plan` and `StatementSet.compile_plan` create it.

    Examples:
        >>> from penstock.table import EnvironmentSettings, PlanReference, TableEnvironment
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> _ = t_env.execute_sql("CREATE TABLE shown (n INT) WITH ('connector' = 'print')")
        >>> plan = t_env.compile_plan_sql("INSERT INTO shown VALUES (1)")
        >>> t_env.load_plan(PlanReference.from_json_string(plan.as_json_string())).execute().wait()
        +I[1]
    """

    def __init__(self, text: str, session: TableSession) -> None:
        self._text = text
        self._session = session
        self._queries = session.load_compiled(text)

    def as_json_string(self) -> str:
        """Return the plan as JSON."""
        return self._text

    def write_to_file(self, file: str | Path, ignore_if_exists: bool = False) -> None:
        """Write the plan into a file.

        Raises:
            ValidationError: if the file exists, unless `ignore_if_exists` is set.
        """
        path = Path(file)
        if not (ignore_if_exists and path.exists()):
            store_plan(path, self._text)

    def get_flink_version(self) -> str:
        """Return the version of Penstock that compiled the plan; the name is Flink's."""
        return str(json.loads(self._text)["penstockVersion"])

    def print_json_string(self) -> None:
        """Print the plan as JSON."""
        sys.stdout.write(self._text + "\n")

    def execute(self) -> TableResult:
        """Start the job."""
        return self._session.write_compiled(self._queries)

    def explain(self, *extra_details: ExplainDetail) -> str:
        """Return the plan, and how it runs, as text."""
        return self._session.explain_compiled(self._queries, detail_names(extra_details))

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print what `explain` returns."""
        sys.stdout.write(self.explain(*extra_details) + "\n")

    def __str__(self) -> str:
        return self.explain()
