"""Random rows, watermarks and restores for process table functions, beside a plain runtime of a few lines.

`python -m tests.table.process.random_calls [--tries N] [--seed N]`: each try draws a seed and prints it if the operator
and the plain runtime differ. The plain runtime calls the same functions: it keeps objects in dictionaries, sorts timers
and waiting rows when it needs them, and knows no batches, columns, subtasks or checkpoints.
"""

from __future__ import annotations

import random
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
from tests.table.process import functions
from tests.table.process.called import Called

from penstock.common import Row
from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.user_functions.calls import iterate_rows
from penstock.sql.user_functions.signature import LIST, MAP
from penstock.table import ListView, MapView
from penstock.table.udf import udptf

KEYS: Final = ("a", "b", "c", "d", None)


class PlainRuntime:
    """Calls a function for the partitions of its tables; it is also the context of its calls."""

    def __init__(self, function: Any, names: list[tuple[str, ...]], time: int, is_ordered: bool) -> None:
        self._function = function
        self._signature = udptf(function).definition.signature
        self._names = names
        self._time_column = time
        self._is_ordered = is_ordered
        self._states: dict[Any, dict[str, Any]] = defaultdict(dict)
        self._timers: dict[Any, dict[Any, int]] = defaultdict(dict)
        self._waiting: list[tuple[int, Any, int, tuple[Any, ...]]] = []
        self._cleared: set[str] = set()
        self._key: Any = None
        self._time: int | None = None
        self._watermark: int | None = None
        self._late_up_to = -(2**63)
        self._timer: str | None = None
        self.emitted: dict[Any, list[str]] = defaultdict(list)

    # the context

    def time_context(self, kind: type) -> PlainRuntime:
        return self

    def time(self) -> int | None:
        return self._time

    def current_watermark(self) -> int | None:
        return self._watermark

    table_watermark = current_watermark

    def current_timer(self) -> str | None:
        return self._timer

    def register_on_time(self, name: Any, time: int | None = None) -> None:
        timers = self._timers[self._key]
        time = name if time is None else time
        if timers.get(name) != time:
            timers.pop(name, None)
            timers[name] = time

    def clear_timer(self, name: Any) -> None:
        self._timers[self._key].pop(name, None)

    def clear_all_timers(self) -> None:
        self._timers[self._key].clear()

    def clear_state(self, name: str) -> None:
        self._cleared.add(name)

    def clear_all_state(self) -> None:
        self._cleared |= {state.name for state in self._signature.states}

    def clear_all(self) -> None:
        self.clear_all_state()
        self.clear_all_timers()

    # what happens

    def rows(self, table: int, rows: list[tuple[Any, ...]]) -> None:
        for values in rows:
            time = values[self._time_column] if self._time_column >= 0 else None
            if time is None or not self._is_ordered:
                self._call(table, values[0], values, time)
            elif time > self._late_up_to:
                self._waiting.append((time, values[1], table, values))

    def watermark(self, watermark: int) -> None:
        due = [row for row in self._waiting if row[0] <= watermark]
        self._waiting = [row for row in self._waiting if row[0] > watermark]
        for time, _, table, values in sorted(due, key=lambda row: row[:2]):
            self._call(table, values[0], values, time)
        self._watermark = self._late_up_to = watermark
        while self._fire(False) | self._fire(True) and watermark == MAX_WATERMARK:
            pass

    def recover(self) -> None:
        self._watermark = None

    def _fire(self, is_named: bool) -> bool:
        has_fired = False
        for key in list(self._timers):
            self._key, timers = key, self._timers[key]
            assert self._watermark is not None
            while due := [
                name for name, time in timers.items() if isinstance(name, str) == is_named and time <= self._watermark
            ]:
                name = min(due, key=timers.__getitem__)
                self._time, self._timer, has_fired = timers.pop(name), name if is_named else None, True
                self._run(self._function.on_timer, self)
                self._time = self._timer = None
        return has_fired

    def _call(self, table: int, key: Any, values: tuple[Any, ...], time: int | None) -> None:
        tables = [argument for argument in self._signature.arguments if argument.is_table]
        row = Row(*values)
        row.set_field_names(self._names[table])
        arguments = [
            (row if argument is tables[table] else None) if argument.is_table else argument.default
            for argument in self._signature.arguments
        ]
        self._key, self._time = key, time
        self._run(self._function.eval, *([self] if self._signature.has_context else []), arguments=arguments)
        self._time = None

    def _run(self, method: Callable[..., Any], *context: Any, arguments: Any = ()) -> None:
        states = self._states[self._key]
        for entry in self._signature.states:
            states.setdefault(entry.name, _created(entry))
        self._function._emit = lambda row: self._take(row)
        of_call = [states[entry.name] for entry in self._signature.states]
        for row in iterate_rows(method(*context, *of_call, *arguments)):
            self._take(row)
        for name in self._cleared:
            del states[name]
        self._cleared.clear()

    def _take(self, row: Any) -> None:
        self.emitted[self._key].append(str(row))


def _created(entry: Any) -> Any:
    if entry.kind == LIST:
        return ListView()
    if entry.kind == MAP:
        return MapView()
    if entry.state_class is not None:
        return entry.state_class()
    row = Row(*[None] * len(entry.fields))
    row.set_field_names(entry.fields)
    return row


def _orders(chance: random.Random) -> str:
    words = []
    for _ in range(chance.randint(0, 4)):
        name = chance.choice(("", "", "x", "y", "again", "forget"))
        time = chance.randint(0, 60)
        words.append(
            chance.choice(
                (
                    "show",
                    f"set:{name}@{time}",
                    f"set:{name}@{time}",
                    f"clear:{name}@{time}",
                    "clear-timers",
                    "clear-all",
                )
            )
        )
    return " ".join(words)


#: a query, its function, the names of its tables' columns, the column of the time, and whether rows are in order
Shape = tuple[str, Any, list[tuple[str, ...]], int, bool]
_TIMED: Final = ("k", "orders", "ts")
SHAPES: Final[tuple[Shape, ...]] = (
    ("f(r => TABLE w PARTITION BY k, on_time => DESCRIPTOR(ts))", functions.Timing, [_TIMED], 2, False),
    (
        "f(r => TABLE w PARTITION BY k ORDER BY (ts, orders), on_time => DESCRIPTOR(ts))",
        functions.Timing,
        [_TIMED],
        2,
        True,
    ),
    ("f(TABLE w PARTITION BY k)", functions.Timing, [_TIMED], -1, False),
    ("f(TABLE u PARTITION BY k)", functions.Remembering, [("k", "word")], -1, False),
    ("f(TABLE c PARTITION BY k)", functions.Filling, [("k", "product")], -1, False),
    (
        "f(`left` => TABLE u PARTITION BY k, `right` => TABLE c PARTITION BY k)",
        functions.Joining,
        [("k", "word"), ("k", "product")],
        -1,
        False,
    ),
)


def _drawn(shape: Shape, table: int, chance: random.Random, clock: int) -> tuple[Any, ...]:
    key = chance.choice(KEYS)
    if shape[2][table] == _TIMED:
        return (key, _orders(chance), clock + chance.randint(-5, 10))
    return (key, chance.choice(("tea", "rum", "words", "all", "drop")))


def differences(seed: int) -> str:
    """What the operator and the plain runtime do differently, or nothing."""
    chance = random.Random(seed)
    shape = chance.choice(SHAPES)
    query, function, names, time, is_ordered = shape
    called = Called(f"SELECT * FROM {query}", f=function)
    plain = PlainRuntime(function(), names, time, is_ordered)
    clock = 0
    for step in range(chance.randint(1, 25)):
        turn = chance.random()
        if turn < 0.6:
            table = chance.randrange(len(names))
            rows = [_drawn(shape, table, chance, clock) for _ in range(chance.choice((1, 2, 5, 30)))]
            called.rows(*rows, table=table)
            plain.rows(table, rows)
        elif turn < 0.85:
            clock += chance.randint(1, 12)
            called.watermark(clock)
            plain.watermark(clock)
        else:
            called.recover(chance.randint(1, 4))
            plain.recover()
        wrong = _compare(called, plain, len(names))
        if wrong:
            return f"step {step} of {query}: {wrong}"
    called.watermark(MAX_WATERMARK)
    plain.watermark(MAX_WATERMARK)
    wrong = _compare(called, plain, len(names))
    called.close()
    return wrong


def _compare(called: Called, plain: PlainRuntime, prefix: int) -> str:
    found: dict[str, list[str]] = defaultdict(list)
    width = len(called.node.schema)
    for row in called.take():
        key, *rest = row.removeprefix("+I ").split(", ", prefix)
        text = rest[-1]
        found[key].append(text.rpartition(", ")[0] if width > prefix + 1 else text)
    expected = {str(key): rows for key, rows in plain.emitted.items() if rows}
    plain.emitted = defaultdict(list)
    return "" if dict(found) == expected else f"found {dict(found)}, expected {expected}"


def seeds(tries: int) -> Iterator[int]:
    """Fresh seeds."""
    for _ in range(tries):
        yield secrets.randbits(48)


@click.command(help=__doc__)
@click.option("--tries", default=1_000, show_default=True)
@click.option("--seed", type=int, help="repeat one try")
def main(tries: int, seed: int | None) -> None:
    """See the module docstring."""
    for drawn in [seed] if seed is not None else seeds(tries):
        wrong = differences(drawn)
        if wrong:
            raise click.ClickException(f"seed {drawn}: {wrong}")
    print("no difference")


if __name__ == "__main__":
    main()
