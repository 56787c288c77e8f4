"""Window functions of random queries: a call for Flink; for DuckDB, which lacks them, rows joined with their edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.table.differential.dialects import both


@dataclass(frozen=True)
class Window:
    """A window function with its sizes and its offset in seconds."""

    kind: str
    sizes: tuple[int, ...]
    offset: int = 0

    @property
    def arguments(self) -> str:
        """The sizes and the offset, as both SQL dialects write intervals."""
        lengths = [*self.sizes, *([self.offset] if self.offset else [])]
        return ", ".join(f"INTERVAL '{length}' SECOND" for length in lengths)


def render_windows(window: Window, query: str, time: str, keys: Sequence[str] = ()) -> str:
    """The rows of a query, each with each of its windows. `keys`: the columns that separate sessions."""
    by = f" PARTITION BY ({', '.join(keys)})" if keys else ""
    begin, end = f"TABLE({window.kind}((", f"){by}, DESCRIPTOR({time}), {window.arguments}))"
    before, after = edges_around(window, time, keys)
    return f"{both(begin, before)}{query}{both(end, after)}"


def edges_around(window: Window, time: str, keys: Sequence[str] = ()) -> tuple[str, str]:
    """DuckDB's text before and after a query whose rows get `window_start`, `window_end` and `window_time`."""
    return _sessions(window.sizes[0], time, keys) if window.kind == "SESSION" else _aligned(window, time)


def grouped_call(window: Window, time: str) -> str:
    """The function of the older syntax in GROUP BY, such as `TUMBLE(ts, INTERVAL '1' SECOND)`."""
    return f"{window.kind}({time}, {window.arguments})"


def _aligned(window: Window, time: str) -> tuple[str, str]:
    step, size = window.sizes[0], window.sizes[-1]
    every = step if window.kind == "HOP" else size
    begin = f"time_bucket({_seconds(every)}, {time}, TIMESTAMP '1970-01-01 00:00:00' + {_seconds(window.offset)})"
    starts, ends = [begin], [f"{begin} + {_seconds(size)}"]
    if window.kind == "HOP":
        starts = [f"{begin} - {_seconds(step * number)}" for number in range(-(-size // step))]
        ends = [f"{start} + {_seconds(size)}" for start in starts]
    if window.kind == "CUMULATE":
        ends = [f"{begin} + {_seconds(length)}" for length in range(step, size + 1, step)]
        starts = [begin] * len(ends)
    edges = f"unnest([{', '.join(starts)}]) AS window_start, unnest([{', '.join(ends)}]) AS window_end"
    return _with_time(f"(SELECT *, {edges} FROM (", f") AS placed) AS edged WHERE window_end > {time}")


def _sessions(gap: int, time: str, keys: Sequence[str]) -> tuple[str, str]:
    """Rows that are at most the gap apart are in one session, which ends a gap after its last row."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    within = f"PARTITION BY {', '.join([*keys, 'session_number'])}"
    edges = f"min({time}) OVER ({within}) AS window_start, max({time}) OVER ({within}) + {_seconds(gap)} AS window_end"
    begins = f"coalesce({time} - lag({time}) OVER ({by}ORDER BY {time}) > {_seconds(gap)}, true)::INT"
    return _with_time(
        f"(SELECT *, {edges} FROM (SELECT *, sum(session_begins) OVER ({by}ORDER BY {time}) AS session_number "
        f"FROM (SELECT *, {begins} AS session_begins FROM (",
        ") AS placed) AS begun) AS numbered) AS edged",
    )


def _with_time(before: str, after: str) -> tuple[str, str]:
    return f"(SELECT *, window_end - INTERVAL '1 millisecond' AS window_time FROM {before}", f"{after}) AS windowed"


def _seconds(number: int) -> str:
    return f"INTERVAL '{number} seconds'"
