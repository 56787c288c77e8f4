"""Both meters' readings, minute by minute."""

from collections import Counter, defaultdict

from examples.aligned_sources import MINUTE_MS


def inputs():
    return 5_000, 900


def answer(quick_readings, slow_readings):
    minutes = defaultdict(list)
    for name, readings, every_ms in [("quick", quick_readings, 250), ("slow", slow_readings, 1_000)]:
        for number in range(readings):
            minutes[name, number * every_ms // MINUTE_MS].append(number % 97)
    return Counter((name, minute, len(values), sum(values)) for (name, minute), values in minutes.items())
