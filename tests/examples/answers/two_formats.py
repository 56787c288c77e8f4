"""Both lists, converted one value at a time."""

from collections import Counter

from examples.two_formats import celsius, fahrenheit

from penstock.common import Row


def inputs():
    return fahrenheit(500, seed=121), celsius(500, seed=122)


def answer(in_fahrenheit, in_celsius):
    expected = Counter([Row(station="roof", celsius=19.5)])
    expected.update(
        Row(station=station, celsius=round((degrees - 32) * 5 / 9, 1)) for station, degrees in in_fahrenheit
    )
    readings = [text.partition(";") for text in in_celsius]
    assert not all(degrees for _, _, degrees in readings)
    expected.update(Row(station=station, celsius=float(degrees)) for station, _, degrees in readings if degrees)
    return expected
