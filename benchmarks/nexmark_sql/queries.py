"""The statements of the benchmark, from a folder of its files; they run as they are, but for their connectors."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

QUERIES: Final = tuple(f"q{number}" for number in range(23))
#: not valid SQL
REFUSED: Final = "q6"
#: counts by the clock
BY_CLOCK: Final = "q12"
#: q13 reads this table
SIDE_ROWS: Final = 10_000
#: options of files that say when others hear of whole partitions, of which Penstock tells nobody
_COMMITS: Final = re.compile(r",\s*'(sink\.partition-commit|partition\.time-extractor)\.[\w.-]+'\s*=\s*'[^']*'")
_PROPORTIONS: Final = {"PERSON": "1", "AUCTION": "3", "BID": "46"}


@dataclass(frozen=True)
class NexmarkQuery:
    """One query: what has to be there before it, its sink, and the query itself, each as text.

    `files`: the folder that its sink writes into, if it writes files.
    """

    name: str
    before: tuple[str, ...]
    #: as the file has it
    sink: str
    sink_path: str
    query: str
    files: Path | None = None

    @property
    def is_by_clock(self) -> bool:
        """Whether its windows are those of the clock."""
        return "PROCTIME()" in "".join(self.before) and "TUMBLE" in self.query

    def with_short_windows(self) -> NexmarkQuery:
        """The query with windows of a second, if they are those of the clock."""
        return replace(self, query=self.query.replace("'10' SECOND", "'1' SECOND")) if self.is_by_clock else self

    @property
    def insert(self) -> str:
        """What writes into the sink."""
        return f"INSERT INTO {self.sink_path} {self.query}"

    @property
    def own_sink(self) -> str:
        """The sink without what Penstock has not."""
        return _COMMITS.sub("", self.sink)


def tables(folder: Path, events: int, rate: int) -> list[str]:
    """The statements that make the table of events, and the views on it."""
    text = (folder / "ddl_gen.sql").read_text() + (folder / "ddl_views.sql").read_text()
    values = {"TPS": str(rate), "EVENTS_NUM": str(events), "NEXMARK_TABLE": "datagen"}
    values |= {f"{kind}_PROPORTION": value for kind, value in _PROPORTIONS.items()}
    return _split(_filled(text, values))


def query(folder: Path, name: str, scratch: Path) -> NexmarkQuery:
    """One query. `scratch`: where q10 writes to, and q13 reads from."""
    text = _filled((folder / f"{name}.sql").read_text(), {"NEXMARK_DIR": str(scratch), "SUBMIT_TIME": name})
    before, sink, select, path = [], "", "", ""
    for statement in _split(text):
        if match := re.match(r"\s*INSERT\s+INTO\s+(\w+)\s+(.*)", statement, re.S | re.I):
            path, select = match.groups()
        elif re.match(r"\s*CREATE\s+TABLE\s+side_input\b", statement, re.I):
            before.append(_side_input(scratch))
        elif re.match(r"\s*CREATE\s+TABLE\b", statement, re.I):
            sink = statement
        elif not re.match(r"\s*CREATE\s+FUNCTION\b", statement, re.I):
            # Functions are in Java there, and in Python here.
            before.append(statement)
    files = re.search(r"'path'\s*=\s*'file://([^']*)'", sink)
    return NexmarkQuery(name, tuple(before), sink, path, select, None if files is None else Path(files[1]))


def kept_sink(query: NexmarkQuery) -> str:
    """The sink with a connector that keeps what it is given."""
    return re.sub(r"WITH\s*\(.*\)", "WITH ('connector' = 'kept')", query.sink, flags=re.S)


def _side_input(scratch: Path) -> str:
    (scratch / "side_input.csv").write_text("".join(f"{key},value-{key}\n" for key in range(SIDE_ROWS)))
    return (
        f"CREATE TABLE side_input (key BIGINT, `value` VARCHAR) WITH ('connector' = 'filesystem', "
        f"'path' = '{scratch}/side_input.csv', 'format' = 'csv')"
    )


def _filled(text: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        text = text.replace(f"${{{key}}}", value)
    return re.sub(r"--.*", "", text)


def _split(text: str) -> list[str]:
    return [statement.strip() for statement in text.split(";") if statement.strip()]
