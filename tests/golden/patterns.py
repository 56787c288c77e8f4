"""Snapshots of patterns in the middle of matches, kept as test data.

`python -m tests.golden.patterns` writes those that are missing. Never write one again: each shows what an earlier
version stored.

A scene is a pattern of `penstock.cep`, or of MATCH_RECOGNIZE, with events out of order; half of them are before the
snapshot.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.cep.searching import TIMED_OUT, letter, make_operator, opened, stage
from tests.table.streaming.matching import Matching

from penstock.cep import AfterMatchSkipStrategy, IterativeCondition, Pattern, WithinType
from penstock.runtime.records import MAX_WATERMARK

DIRECTORY = Path(__file__).parent / "pattern_snapshots"
COUNT = 40
Events = list[tuple[Any, ...]]


def _few(event: object, ctx: Any) -> bool:
    return len(list(ctx.get_events_for_pattern("b"))) < 2


def _then(pattern: Pattern, name: str) -> Pattern:
    return pattern.followed_by(name).where(letter(name))


def _skipping(skip: AfterMatchSkipStrategy) -> Pattern:
    return _then(Pattern.begin("a", skip).where(letter("a")).one_or_more(), "b").within(12)


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "sequence": lambda: _then(_then(stage("a"), "b"), "c").within(15),
    "any": lambda: stage("a").followed_by_any("b").where(letter("b")).within(15),
    "absence": lambda: stage("a").not_followed_by("b").where(letter("b")).within(9),
    "loop": lambda: _then(_then(stage("a"), "b").one_or_more().until(letter("d")), "c").within(18),
    "greedy": lambda: _then(stage("a").one_or_more().greedy(), "b").within(17),
    "iterative": lambda: _then(_then(stage("a"), "b").where(IterativeCondition.of(_few)).one_or_more(), "c").within(17),
    "since-last": lambda: _then(_then(stage("a"), "b").within(6, WithinType.PREVIOUS_AND_CURRENT), "c").within(19),
    "skip-past-last": lambda: _skipping(AfterMatchSkipStrategy.skip_past_last_event()),
    "skip-to-next": lambda: _skipping(AfterMatchSkipStrategy.skip_to_next()),
    "skip-to-last": lambda: _skipping(AfterMatchSkipStrategy.skip_to_last("a")),
    "group": lambda: _then(Pattern.begin(_then(stage("a"), "b")).times(2), "c").within(25),
}

_BY_SYMBOL = "PARTITION BY symbol ORDER BY ts"
QUERIES: dict[str, str] = {
    "sql-rows": f"""{_BY_SYMBOL} MEASURES A.price AS a, LAST(B.price) AS b, C.price AS c, MATCH_ROWTIME() AS t
        AFTER MATCH SKIP TO NEXT ROW PATTERN (A B* C) WITHIN INTERVAL '0.02' SECOND
        DEFINE A AS price < 3, B AS price < 8, C AS price >= 8""",
    "sql-matches": f"""{_BY_SYMBOL} MEASURES FIRST(DOWN.price) AS top, LAST(DOWN.price) AS bottom, UP.price AS up
        AFTER MATCH SKIP PAST LAST ROW PATTERN (DOWN{{2,}} UP)
        DEFINE DOWN AS LAST(DOWN.price, 1) IS NULL OR DOWN.price < LAST(DOWN.price, 1),
            UP AS UP.price > LAST(DOWN.price)""",
}
SCENES = (*PATTERNS, *QUERIES)


def draw_events(name: str) -> tuple[Events, Events]:
    """The events of a scene before and after its snapshot: (key, letter or number, time)."""
    chance, now, events = random.Random(name), 5, []
    for _ in range(COUNT):
        now += chance.choice((0, 1, 1, 2))
        kind = chance.randint(0, 9) if name in QUERIES else chance.choice("aaabbbccd")
        events.append((chance.choice("kl"), kind, max(1, now - chance.choice((0, 0, 2, 4)))))
    return events[: COUNT // 2], events[COUNT // 2 :]


class Scene:
    """A pattern that is being looked for.

    Args:
        name: of the scene.
        snapshot: what it goes on from.
    """

    def __init__(self, name: str, snapshot: bytes | None = None) -> None:
        self._is_query = name in QUERIES
        self._timed_out = 0
        given = () if snapshot is None else (snapshot,)
        if self._is_query:
            self._query: Any = Matching(QUERIES[name], *given)
        else:
            self._harness = opened(make_operator(PATTERNS[name]()), *given)

    def feed(self, events: Events, lag_ms: int = 4) -> list[Any]:
        """Give events in batches of five, with watermarks behind them; returns what is found."""
        for begin in range(0, len(events), 5):
            batch = events[begin : begin + 5]
            watermark = max(time for _, _, time in events[: begin + 5]) - lag_ms - 1
            if self._is_query:
                self._query.rows(*batch)
                self._query.watermark(watermark)
            else:
                self._harness.process_batch(batch, [time for _, _, time in batch])
                self._harness.watermark(watermark)
        return self._take()

    def finish(self) -> list[Any]:
        """The end of time; returns what is found."""
        (self._query if self._is_query else self._harness).watermark(MAX_WATERMARK)
        return self._take()

    def snapshot(self) -> bytes:
        """The state."""
        harness = self._query.harnesses[0] if self._is_query else self._harness
        result: bytes = harness.snapshot(1)
        return result

    def close(self) -> None:
        """Close the operator."""
        (self._query.harnesses[0] if self._is_query else self._harness).close()

    def _take(self) -> list[Any]:
        if self._is_query:
            return list(map(str, self._query.take()))
        timed_out = [str(record) for record in self._harness.side_output(TIMED_OUT)]
        begin, self._timed_out = self._timed_out, len(timed_out)
        return [str(record) for record in self._harness.take_output()] + timed_out[begin:]


def main() -> None:
    """Write the snapshots that are missing."""
    DIRECTORY.mkdir(exist_ok=True)
    for name in SCENES:
        file = DIRECTORY / f"{name}.bin"
        if not file.exists():
            with closing(Scene(name)) as scene:
                scene.feed(draw_events(name)[0])
                file.write_bytes(scene.snapshot())
            sys.stdout.write(f"{file}: {file.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
