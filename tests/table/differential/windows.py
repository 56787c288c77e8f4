"""Windows of random queries: a call for Flink, and for DuckDB, which has no such functions, rows with their edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.table.differential.tongues import both


@dataclass(frozen=True)
class Window:
    """A window function, its sizes and its offset in seconds."""

    kind: str
    sizes: tuple[int, ...]
    offset: int = 0


def windows_of(window: Window, query: str, time: str, apart: Sequence[str] = ()) -> str:
    """The rows of a query with each of their windows. `apart`: columns that keep sessions apart."""
    lengths = [*window.sizes, *([window.offset] if window.offset else [])]
    sizes = ", ".join(f"INTERVAL '{one}' SECOND" for one in lengths)
    by = f" PARTITION BY ({', '.join(apart)})" if apart else ""
    begin = f"TABLE({window.kind}(("
    end = f"){by}, DESCRIPTOR({time}), {sizes}))"
    before, after = _sessions(window.sizes[0], time, apart) if window.kind == "SESSION" else _placed(window, time)
    return f"{both(begin, before)}{query}{both(end, after)}"


def _placed(window: Window, time: str) -> tuple[str, str]:
    """What is before and after a query whose rows are in windows that begin at regular times."""
    step, size = window.sizes[0], window.sizes[-1]
    every = step if window.kind == "HOP" else size
    begin = f"time_bucket({_seconds(every)}, {time}, TIMESTAMP '1970-01-01 00:00:00' + {_seconds(window.offset)})"
    starts, ends = [begin], [f"{begin} + {_seconds(size)}"]
    if window.kind == "HOP":
        starts = [f"{begin} - {_seconds(step * place)}" for place in range(-(-size // step))]
        ends = [f"{start} + {_seconds(size)}" for start in starts]
    if window.kind == "CUMULATE":
        ends = [f"{begin} + {_seconds(length)}" for length in range(step, size + 1, step)]
        starts = [begin] * len(ends)
    edges = f"unnest([{', '.join(starts)}]) AS window_start, unnest([{', '.join(ends)}]) AS window_end"
    return _with_time(f"(SELECT *, {edges} FROM (", f") AS placed) AS edged WHERE window_end > {time}")


def _sessions(gap: int, time: str, apart: Sequence[str]) -> tuple[str, str]:
    """The same for sessions: rows no further apart than the gap are in one, which ends a gap after the last one."""
    by = f"PARTITION BY {', '.join(apart)} " if apart else ""
    within = f"PARTITION BY {', '.join([*apart, 'session_number'])}"
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
