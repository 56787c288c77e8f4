"""Each sensor's readings in order; an alarm where the next one is missing or too far."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable

from examples.keyed_timers import SILENCE_MS, Alarm, Reading


def inputs():
    chance = random.Random(3)
    made = []
    now_ms = 0
    for _ in range(2_000):
        now_ms += chance.randrange(1, 1_500)
        made.append((f"sensor {chance.randrange(8)}", now_ms, round(chance.uniform(15, 25), 1)))
    return (made,)


def answer(readings: Iterable[Reading]) -> Counter[Alarm]:
    of_sensors = defaultdict(list)
    for sensor, moment_ms, measured in readings:
        of_sensors[sensor].append((moment_ms, measured))
    alarms: Counter[Alarm] = Counter()
    for sensor, measurements in of_sensors.items():
        since = 0
        for index, (moment_ms, measured) in enumerate(measurements):
            since += 1
            due_ms = moment_ms + SILENCE_MS
            if index + 1 == len(measurements) or measurements[index + 1][0] > due_ms:
                alarms[sensor, due_ms, since, measured] += 1
                since = 0
    return alarms
