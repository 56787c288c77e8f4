"""All workloads by their names in the tables."""

from __future__ import annotations

from benchmarks import workloads as w
from benchmarks.columnar import COLUMNAR
from benchmarks.joins import JOIN
from benchmarks.large_state import LARGE_STATE
from benchmarks.sessions import SESSIONS
from benchmarks.sparse import SPARSE
from benchmarks.workloads import Workload

WORKLOADS: dict[str, Workload] = {
    "W1": Workload("map + filter", w.bare_map_filter, w.map_filter),
    "W2": Workload("keyed reduce", w.bare_keyed_reduce, w.keyed_reduce),
    "W3": Workload("10 s tumbling count", w.bare_tumbling_count, w.tumbling_count),
    "W4": Workload("keyed process, state and timer", w.bare_process_with_timer, w.process_with_timer),
    "W5": COLUMNAR,
    "W6": SESSIONS,
    "W7": JOIN,
    "W8": LARGE_STATE,
    **SPARSE,
}
