"""Every reading put into its six windows, by hand."""

from collections import Counter, defaultdict

from examples.moving_average import readings

SIZE_MS, SLIDE_MS = 60_000, 10_000


def inputs():
    return (readings(2_000, seed=109),)


def answer(made):
    windows = defaultdict(list)
    for reading in made:
        first_end_ms = reading.time_ms // SLIDE_MS * SLIDE_MS + SLIDE_MS
        for end_ms in range(first_end_ms, first_end_ms + SIZE_MS, SLIDE_MS):
            windows[reading.sensor, end_ms].append(round(reading.celsius * 10))
    return Counter(
        (sensor, end_ms, round(sum(tenths) / len(tenths) / 10, 2), len(tenths))
        for (sensor, end_ms), tenths in windows.items()
    )
