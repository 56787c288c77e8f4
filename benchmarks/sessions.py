"""W6: session windows by key, with a gap of a second. Hot keys have one session that goes on and on, others many."""

from __future__ import annotations

import heapq

from benchmarks.events import OUT_OF_ORDER_MS, Event, EventsSpec, SharedEvents
from benchmarks.workloads import START, Count, Emit, Workload, get_event_time, select_key, with_time
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows

GAP_MS = 1_000
#: the end of a session that became part of another
GONE = -1
#: (when, a number that no other has, key, session)
Due = tuple[int, int, int, list[int]]


def bare_sessions(events: list[Event], emit: Emit) -> None:
    """A key's sessions are `[start, end, contents]`; a session is looked at again where it ended when last seen."""
    count = Count()
    sessions: dict[int, list[list[int]]] = {}
    ends: list[Due] = []
    watermark = highest = START
    for number, event in enumerate(events):
        timestamp = get_event_time(event)
        key = select_key(event)
        start, end = timestamp, timestamp + GAP_MS
        held = sessions.get(key)
        if held is None:
            held = sessions[key] = []
        touched = [s for s in held if s[0] <= end and start <= s[1]]
        if touched:
            session = touched[0]
            for other in touched[1:]:
                session[2] = count.merge(session[2], other[2])
                start, end = min(start, other[0]), max(end, other[1])
                held.remove(other)
                other[1] = GONE
            session[2] = count.add(event, session[2])
            session[0], session[1] = min(start, session[0]), max(end, session[1])
        elif end - 1 > watermark:
            session = [start, end, count.add(event, count.create_accumulator())]
            held.append(session)
            heapq.heappush(ends, (end - 1, number, key, session))
        if timestamp > highest:
            highest = timestamp
            watermark = timestamp - OUT_OF_ORDER_MS - 1
            if ends and ends[0][0] <= watermark:
                _fire(sessions, ends, watermark, count, emit)
    _fire(sessions, ends, 2**63 - 1, count, emit)


def _fire(sessions: dict[int, list[list[int]]], ends: list[Due], watermark: int, count: Count, emit: Emit) -> None:
    while ends and ends[0][0] <= watermark:
        due, number, key, session = heapq.heappop(ends)
        if session[1] - 1 == due:
            emit(count.get_result(session[2]))
            sessions[key].remove(session)
        elif session[1] != GONE:
            heapq.heappush(ends, (session[1] - 1, number, key, session))


def sessions(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    keyed = env.from_source(SharedEvents(spec), with_time(), "events").key_by(select_key)
    return keyed.window(EventTimeSessionWindows.with_gap(GAP_MS)).aggregate(Count())


SESSIONS = Workload("session windows", bare_sessions, sessions)
