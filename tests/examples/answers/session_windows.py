"""Each visitor's clicks in order, cut where there was nothing for half an hour."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable

from examples.session_windows import MINUTE_MS, Click

GAP_MS = 30 * MINUTE_MS


def inputs():
    """Clicks, each at most four minutes behind the latest one."""
    chance = random.Random(2)
    made = []
    now_ms = 0
    for _ in range(2_000):
        now_ms += int(chance.expovariate(1 / (3 * MINUTE_MS)))
        made.append((chance.choice("abcdefghij"), "/", max(0, now_ms - int(chance.uniform(0, 4 * MINUTE_MS)))))
    return (made,)


def answer(clicks: Iterable[Click]) -> Counter[tuple[str, int, int, int]]:
    of_visitors = defaultdict(list)
    for visitor, _, moment_ms in clicks:
        of_visitors[visitor].append(moment_ms)
    sessions: Counter[tuple[str, int, int, int]] = Counter()
    for visitor, moments in of_visitors.items():
        moments.sort()
        first = 0
        for index, moment_ms in enumerate(moments):
            if index + 1 == len(moments) or moments[index + 1] > moment_ms + GAP_MS:
                sessions[visitor, moments[first], moment_ms + GAP_MS, index + 1 - first] += 1
                first = index + 1
    return sessions
