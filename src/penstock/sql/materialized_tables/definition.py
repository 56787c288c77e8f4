"""The definition of a materialized table: `Definition`, the query, `Freshness` and mode of its refresh, and its status.

A definition is a few options of the table, below `penstock.materialized.`, so every catalog that keeps options keeps
it. The text of the query is resolved where CREATE was run, as that of a view is.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.base import server_options as options
from penstock.base.errors import UnsupportedError
from penstock.base.options import RUNTIME_MODE
from penstock.sql.catalogs.catalog import DEFINITION, CatalogBaseTable
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import parse_statement, statements, syntax, to_sql
from penstock.sql.session.session import TableConfig

CONTINUOUS: Final = "CONTINUOUS"
FULL: Final = "FULL"
#: the refresh mode of a table that declares none: its freshness chooses
AUTOMATIC: Final = "AUTOMATIC"
ACTIVATED: Final = "ACTIVATED"
SUSPENDED: Final = "SUSPENDED"

STREAMING: Final = "STREAMING"
MICRO_BATCH: Final = "MICRO_BATCH"
BATCH: Final = "BATCH"

_UNITS_MS: Final = {
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 7 * 86_400_000,
}
#: The units that a schedule can have: how many of them the next larger one has, and the schedule of every N of them.
_SCHEDULES: Final = {
    "SECOND": (60, "0/{} * * * * ? *"),
    "MINUTE": (60, "0 0/{} * * * ? *"),
    "HOUR": (24, "0 0 0/{} * * ? *"),
}


@dataclass(frozen=True, slots=True)
class Freshness:
    """The maximum staleness of the rows of a table: a number of units."""

    count: int
    unit: str

    @staticmethod
    def of_interval(interval: syntax.Expression) -> Freshness:
        """Return the freshness of an interval. Raises `ValidationError` for intervals that Flink rejects."""
        assert isinstance(interval, syntax.IntervalLiteral)
        qualifier = interval.qualifier
        unit = qualifier.resolution.name
        if unit == "DAY" and qualifier.times > 1:
            unit = "WEEK"
        if unit not in _UNITS_MS:
            raise ValidationError(
                "Materialized table freshness only supports SECOND, MINUTE, HOUR, DAY, WEEK as the time unit."
            )
        text = f"-{interval.text}" if interval.is_negative else interval.text
        if not text.isdecimal() or int(text) == 0:
            raise ValidationError(
                f"The freshness interval currently only supports positive integer type values. But was: {text}"
            )
        return Freshness(int(text), unit)

    @staticmethod
    def of_ms(duration_ms: int) -> Freshness:
        """Return the freshness of a duration, in the largest unit that is exact; less than a second is one."""
        for unit in ("DAY", "HOUR", "MINUTE"):
            if duration_ms % _UNITS_MS[unit] == 0:
                return Freshness(duration_ms // _UNITS_MS[unit], unit)
        return Freshness(max(1, duration_ms // 1_000), "SECOND")

    @property
    def ms(self) -> int:
        """The freshness in milliseconds."""
        return self.count * _UNITS_MS[self.unit]

    def schedule(self) -> str:
        """Return the cron expression of a full refresh. Raises `ValidationError` for freshness that Flink rejects."""
        if self.unit not in _SCHEDULES:
            if self.unit == "DAY" and self.count == 1:
                return "0 0 0 * * ? *"
            raise ValidationError(
                f"In full refresh mode, freshness must be 1 when the time unit is DAY, and not {self}: declare "
                "REFRESH_MODE = CONTINUOUS, or another FRESHNESS"
            )
        limit, form = _SCHEDULES[self.unit]
        if self.count >= limit:
            raise ValidationError(
                f"In full refresh mode, freshness must be less than {limit} when the time unit is {self.unit}."
            )
        if limit % self.count:
            raise ValidationError(
                f"In full refresh mode, only freshness that are factors of {limit} are currently supported when the "
                f"time unit is {self.unit}."
            )
        return form.format(self.count)

    def __str__(self) -> str:
        return f"INTERVAL '{self.count}' {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of a materialized table.

    Attributes:
        query: its text.
        namespace: the catalog and database that resolve the names of the query.
        freshness: the maximum staleness of the rows.
        requested_mode: CONTINUOUS, FULL or AUTOMATIC, as declared.
        refresh_mode: CONTINUOUS or FULL.
        status: ACTIVATED or SUSPENDED.
        job_id: the last job that kept the table up to date.
        savepoint: the savepoint from which the next job starts.
        checkpoints: the checkpoint directory of the last job.
        name_suffix: distinguishes the jobs of this table from the jobs of an earlier table of its name.
        first: the first task of the next job: REFRESH the rows, or EMPTY the table.
    """

    query: str
    namespace: tuple[str, str]
    freshness: Freshness
    requested_mode: str
    refresh_mode: str
    status: str = SUSPENDED
    job_id: str = ""
    savepoint: str = ""
    checkpoints: str = ""
    name_suffix: str = ""
    first: str = ""

    @staticmethod
    def read(table: CatalogBaseTable) -> Definition:
        """Return the definition of a table."""
        texts = {
            key.removeprefix(DEFINITION).replace("-", "_"): value
            for key, value in table.options.items()
            if key.startswith(DEFINITION)
        }
        namespace = parse_names(texts.pop("namespace"))
        count, _, unit = texts.pop("freshness").partition(" ")
        return Definition(namespace=(namespace[0], namespace[1]), freshness=Freshness(int(count), unit), **texts)

    def written(self, table: CatalogBaseTable) -> CatalogBaseTable:
        """Return the table with this definition."""
        texts = {
            "query": self.query,
            "namespace": ".".join(f"`{name.replace('`', '``')}`" for name in self.namespace),
            "freshness": f"{self.freshness.count} {self.freshness.unit}",
            "requested-mode": self.requested_mode,
            "refresh-mode": self.refresh_mode,
            "status": self.status,
            "job-id": self.job_id,
            "savepoint": self.savepoint,
            "checkpoints": self.checkpoints,
            "name-suffix": self.name_suffix,
            "first": self.first,
        }
        of_definition = {DEFINITION + key: text for key, text in texts.items() if text}
        return replace(table, options={**table.get_options(), **of_definition})

    def execution_mode(self, config: TableConfig) -> str:
        """Return STREAMING or MICRO_BATCH for a continuous refresh, BATCH for a full one."""
        if self.refresh_mode == FULL:
            return BATCH
        return MICRO_BATCH if self.freshness.ms >= config.read(options.MICRO_BATCH_THRESHOLD_MS) else STREAMING

    def at_freshness(self, freshness: Freshness, requested_mode: str, config: TableConfig) -> Definition:
        """Return the definition with another freshness and requested mode, and the refresh mode that follows."""
        mode = requested_mode
        if mode == AUTOMATIC:
            mode = FULL if freshness.ms >= config.read(options.FRESHNESS_THRESHOLD_MS) else CONTINUOUS
        if mode == FULL:
            freshness.schedule()
        return replace(self, freshness=freshness, requested_mode=requested_mode, refresh_mode=mode)


def parse_names(text: str) -> tuple[str, ...]:
    """Return the parts of a name with quotes."""
    statement = parse_statement(f"USE {text}")
    assert isinstance(statement, statements.Use)
    return statement.paths[0]


def define(
    statement: statements.CreateMaterializedTable, namespace: tuple[str, str], config: TableConfig
) -> Definition:
    """Return the definition that CREATE MATERIALIZED TABLE says."""
    assert statement.query is not None
    if statement.start_mode is not None and not statement.start_mode[0].endswith("FROM_BEGINNING"):
        raise UnsupportedError(
            f"START_MODE = {statement.start_mode[0]} is not supported: the job begins where the tables of the query "
            "do, which options of theirs choose, such as /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */"
        )
    mode = statement.refresh_mode or AUTOMATIC
    if statement.freshness is not None:
        freshness = Freshness.of_interval(statement.freshness)
    else:
        of_mode = options.DEFAULT_FRESHNESS_FULL_MS if mode == FULL else options.DEFAULT_FRESHNESS_CONTINUOUS_MS
        freshness = Freshness.of_ms(config.read(of_mode))
    definition = Definition(
        query=to_sql(statement.query),
        namespace=namespace,
        freshness=freshness,
        requested_mode=mode,
        refresh_mode=CONTINUOUS,
        name_suffix=uuid.uuid4().hex[:8],
    )
    return definition.at_freshness(freshness, mode, config)


def show_clauses(definition: Definition) -> list[str]:
    """Return the clauses of SHOW CREATE MATERIALIZED TABLE after the options, a line each."""
    return [
        "START_MODE = FROM_BEGINNING",
        f"FRESHNESS = {definition.freshness}",
        f"REFRESH_MODE = {definition.refresh_mode}",
        f"AS {definition.query}",
    ]


def options_of_job(definition: Definition, name: str, config: TableConfig) -> Mapping[str, str]:
    """Return the options of the job of a continuous refresh, without where it begins."""
    interval = f"{definition.freshness.ms} ms"
    chosen = {
        "pipeline.name": name,
        RUNTIME_MODE.key(): definition.execution_mode(config),
        "execution.micro-batch.interval": interval,
        "table.dml-sync": "false",
    }
    given = config.to_map()
    if "execution.checkpointing.interval" not in given:  # as in Flink, the user's interval stays
        chosen["execution.checkpointing.interval"] = interval
    if "execution.checkpointing.externalized-checkpoint-retention" not in given:
        chosen["execution.checkpointing.externalized-checkpoint-retention"] = "RETAIN_ON_CANCELLATION"
    return chosen
