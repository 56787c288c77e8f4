"""Descriptions of stored patterns: which partial matches are still valid after the pattern has changed.

A partial match is in a state that belongs to a stage. It is valid in another pattern if all stages up to and including
that stage are the same, and the other automaton has the state. Later stages may have changed: the partial match
continues with the current ones. Conditions are functions and cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.core.patterns.automaton import Automaton
from penstock.core.patterns.pattern import Contiguity, Group, Part, Pattern, Stage, Times


@dataclass(frozen=True, slots=True)
class Description:
    """A pattern in words, and the labels of its states. `stages`: each name with its description.

    `places`: for each state, the index of its stage.
    """

    stages: tuple[tuple[str, str], ...]
    within: str
    labels: tuple[str, ...]
    places: tuple[int, ...]

    def to_state(self) -> tuple[object, ...]:
        """Return the description as plain values to be stored."""
        return (1, self.stages, self.within, self.labels, self.places)

    @staticmethod
    def of_state(stored: Sequence[object]) -> Description:
        """Restore a stored description."""
        _, stages, within, labels, positions = stored
        return Description(stages, within, labels, positions)  # type: ignore[arg-type]


def describe_pattern(pattern: Pattern, automaton: Automaton) -> Description:
    """Return the description of a pattern."""
    stages = tuple(_described(pattern.parts, ""))
    names = [name for name, _ in stages]
    positions = tuple(names.index(name) if name in names else -1 for name in automaton.names)
    within = "any time" if pattern.within_ms is None else f"{pattern.within_ms} ms"
    return Description(stages, within, automaton.labels, positions)


def differences(before: Description, now: Description) -> list[str]:
    """Return the changes of stages, their order and the time limit, a sentence each."""
    changes = []
    old, new = dict(before.stages), dict(now.stages)
    for name, text in before.stages:
        if name not in new:
            changes.append(f"stage {name!r} is gone")
        elif new[name] != text:
            changes.append(f"stage {name!r} is {new[name]!r}, and was {text!r}")
    changes += [f"stage {name!r} is new" for name in new if name not in old]
    if not changes and [name for name, _ in before.stages] != [name for name, _ in now.stages]:
        changes.append(f"the order of stages is {', '.join(new)}, and was {', '.join(old)}")
    if before.within != now.within:
        changes.append(f"a match takes less than {now.within}, and took less than {before.within}")
    return changes


def states_kept(before: Description, now: Description) -> dict[int, int]:
    """Map the numbers of the states that keep their meaning to their new numbers."""
    same = 0
    while same < min(len(before.stages), len(now.stages)) and before.stages[same] == now.stages[same]:
        same += 1
    numbers = {label: number for number, label in enumerate(now.labels)}
    return {
        number: numbers[label]
        for number, label in enumerate(before.labels)
        if label in numbers and before.places[number] < same
    }


def _described(parts: tuple[Part, ...], within: str) -> Iterator[tuple[str, str]]:
    for index, part in enumerate(parts):
        text = _said(part, first=not index and not within)
        if isinstance(part, Group):
            yield from _described(part.parts, f"{within}in a group ({text}): ")
        else:
            yield part.name, f"{within}{text}"


def _said(part: Part, first: bool) -> str:
    contiguity = "first" if first else part.contiguity.value
    since = part.since_last_ms if isinstance(part, Stage) else None
    return ", ".join([contiguity, *_often(part.times), *([] if since is None else [f"within {since} ms"])])


def _often(times: Times) -> list[str]:
    if (times.least, times.most) == (1, 1):
        terms = []
    elif times.most is None:
        terms = [f"{times.least} or more"]
    else:
        terms = [f"{times.least} to {times.most} times" if times.least != times.most else f"{times.least} times"]
    if terms and times.inner is not Contiguity.RELAXED:
        terms.append("consecutive" if times.inner is Contiguity.STRICT else "in all combinations")
    terms += ["optional"] * times.is_optional + ["greedy"] * times.is_greedy
    terms += ["with until"] * (times.until is not None)
    return terms + ([] if times.window_ms is None else [f"less than {times.window_ms} ms apart"])
