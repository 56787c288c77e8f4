"""Intervals of each viewer, sorted by their start; those that touch or overlap are one."""

from collections import Counter, defaultdict

from examples.dynamic_sessions import GAPS_MS, views


def inputs():
    return (views(2_000, seed=116),)


def answer(made):
    of_viewers = defaultdict(list)
    for viewer, kind, moment_ms in made:
        of_viewers[viewer].append((moment_ms, moment_ms + GAPS_MS[kind], kind))
    sessions: Counter = Counter()
    for viewer, intervals in of_viewers.items():
        start, end = None, -1
        kinds: Counter = Counter()
        for first, last, kind in [*sorted(intervals), (float("inf"), 0, "")]:
            if first > end:
                if start is not None:
                    sessions[viewer, start, end, kinds["clip"], kinds["episode"], kinds["film"]] += 1
                start, end, kinds = first, last, Counter()
            end = max(end, last)
            kinds[kind] += 1
    return sessions
