"""The examples give what a plain computation gives, in one process and on Spark."""

import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from examples import broadcast_rules, keyed_timers, session_windows, word_count
from penstock.common import Configuration
from penstock.datastream import DataStream, StreamExecutionEnvironment

EXAMPLES = Path(__file__).parents[2] / "examples"
MINUTE_MS = session_windows.MINUTE_MS
GAP_MS = 30 * MINUTE_MS


def lines(count: int) -> list[str]:
    chance = random.Random(1)
    words = ["to", "be", "or", "not", "that", "is", "the", "question"]
    return [" ".join(chance.choices(words, k=8)) for _ in range(count)]


def plain_word_count(texts: Iterable[str]) -> Counter[tuple[str, int]]:
    counts: Counter[str] = Counter()
    told: Counter[tuple[str, int]] = Counter()
    for word in chain.from_iterable(map(word_count.words_of, texts)):
        counts[word] += 1
        told[word, counts[word]] += 1
    return told


def clicks(count: int) -> list[session_windows.Click]:
    """Clicks, each at most four minutes behind the latest one."""
    chance = random.Random(2)
    made = []
    now_ms = 0
    for _ in range(count):
        now_ms += int(chance.expovariate(1 / (3 * MINUTE_MS)))
        made.append((chance.choice("abcdefghij"), "/", max(0, now_ms - int(chance.uniform(0, 4 * MINUTE_MS)))))
    return made


def plain_sessions(made: Iterable[session_windows.Click]) -> Counter[tuple[str, int, int, int]]:
    of_visitors = defaultdict(list)
    for visitor, _, moment_ms in made:
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


def readings(count: int) -> list[keyed_timers.Reading]:
    chance = random.Random(3)
    made = []
    now_ms = 0
    for _ in range(count):
        now_ms += chance.randrange(1, 1_500)
        made.append((f"sensor {chance.randrange(8)}", now_ms, round(chance.uniform(15, 25), 1)))
    return made


def plain_alarms(made: Iterable[keyed_timers.Reading]) -> Counter[keyed_timers.Alarm]:
    of_sensors = defaultdict(list)
    for sensor, moment_ms, measured in made:
        of_sensors[sensor].append((moment_ms, measured))
    alarms: Counter[keyed_timers.Alarm] = Counter()
    for sensor, measurements in of_sensors.items():
        since = 0
        for index, (moment_ms, measured) in enumerate(measurements):
            since += 1
            due_ms = moment_ms + keyed_timers.SILENCE_MS
            if index + 1 == len(measurements) or measurements[index + 1][0] > due_ms:
                alarms[sensor, due_ms, since, measured] += 1
                since = 0
    return alarms


def payments(count: int) -> list[broadcast_rules.Payment]:
    chance = random.Random(4)
    return [(f"account {chance.randrange(50)}", chance.choice("ABC"), chance.randrange(9_999)) for _ in range(count)]


def plain_conversions(made: Iterable[broadcast_rules.Payment]) -> Counter[broadcast_rules.Converted]:
    rates = {currency: cents for currency, _, cents in [*broadcast_rules.RATE_LIST, *LETTER_RATES]}
    return Counter((account, which, amount, amount * rates[which] // 100) for account, which, amount in made)


LETTER_RATES: list[broadcast_rules.Rate] = [("A", 1, 50), ("B", 1, 100), ("C", 1, 333)]


def build_conversions(env: StreamExecutionEnvironment, made: Iterable[broadcast_rules.Payment]) -> DataStream:
    return broadcast_rules.build(env, made, LETTER_RATES)


Case = tuple[Callable[..., DataStream], list[Any], Callable[[Iterable[Any]], Counter[Any]]]

CASES: dict[str, Case] = {
    "broadcast rules": (build_conversions, payments(1_000), plain_conversions),
    "broadcast rules, as it stands": (broadcast_rules.build, broadcast_rules.PAYMENTS, plain_conversions),
    "word count": (word_count.build, lines(300), plain_word_count),
    "word count, as it stands": (word_count.build, word_count.LINES, plain_word_count),
    "session windows": (session_windows.build, clicks(2_000), plain_sessions),
    "session windows, as it stands": (session_windows.build, session_windows.CLICKS, plain_sessions),
    "keyed timers": (keyed_timers.build, readings(2_000), plain_alarms),
    "keyed timers, as it stands": (keyed_timers.build, keyed_timers.READINGS, plain_alarms),
}


def run(case: Case, target: str, parallelism: int) -> tuple[Counter[Any], Counter[Any]]:
    build, records, plain = case
    settings = Configuration.from_dict({"execution.target": target, "parallelism.default": parallelism})
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.enable_checkpointing(200)
    with build(env, records).execute_and_collect() as results:  # type: ignore[union-attr]
        return Counter(results), plain(records)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_in_one_process(name: str, parallelism: int) -> None:
    ours, plain = run(CASES[name], "local", parallelism)
    assert ours == plain


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("name", ["word count", "session windows", "keyed timers", "broadcast rules"])
def test_on_spark(name: str, parallelism: int) -> None:
    ours, plain = run(CASES[name], "spark", parallelism)
    assert ours == plain


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_each_example_runs_as_a_program(script: Path) -> None:
    command = [sys.executable, str(script), "--target", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 3
