"""Every delivery beside every measurement, if town and times fit."""

from collections import Counter

from examples.interval_join import MINUTE_MS, deliveries, weather


def inputs():
    return deliveries(600, seed=123), weather(600, seed=124)


def answer(delivered, measured):
    return Counter(
        (delivery.id, delivery.town, weather.millimetres, before_ms)
        for delivery in delivered
        for weather in measured
        for before_ms in [delivery.time_ms - weather.time_ms]
        if delivery.town == weather.town and -5 * MINUTE_MS <= before_ms <= 15 * MINUTE_MS
    )
