"""What may come next in a match: the stages behind an event, nearest first, each with what must not lie between.

A pattern stands for a set of words: stage by stage, each as often as its quantifier lets it, groups likewise. A match
is a word with an event for each of its letters. Here the words are spelled out letter by letter, without events.

Rules that Flink's page leaves open, taken from its tests (`UntilConditionITCase`, `GreedyITCase`, `NotPatternITCase`,
`GroupITCase`) and, where these are silent, from what its compiler makes of a pattern:

- until: no event of the loop meets it, and none between two events of the loop. What lies before the first event of the
  loop may meet it; of a group, nothing may, not even before its first event.
- The stage behind a greedy loop neither takes nor passes over an event that the loop would take. An event that meets
  the loop's until as the first one behind ends the loop, and greed with it. A stage that need not come is not let
  behind a greedy one; where such a stage begins a group, greed holds for the first event behind only.
- `not_followed_by` behind a loop: from the first event of the loop on. In front of stages that need not come: up to the
  next event of the match, whichever stage takes it; a match that ends without them does not wait.
- The first stage of a group has the contiguity of the group: that before it in the first round, the inner one later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.cep.oracle.specifications import Condition, Contiguity, Not, Specification, Stage


@dataclass(frozen=True)
class Greed:
    """What a greedy loop would take; it ends with an event that meets `until`."""

    condition: Condition
    until: Condition | None


@dataclass(frozen=True)
class Between:
    """What stands between the last event and the next one, as far as stages were passed over."""

    forbidden: tuple[Condition, ...] = ()
    not_next: tuple[Condition, ...] = ()
    #: greed of the loop that ends here
    greed: tuple[Greed, ...] = ()
    #: greed that looks at the first event behind only
    first_greed: tuple[Greed, ...] = ()
    last: Not | None = None


NOTHING = Between()


@dataclass(frozen=True)
class Choice:
    """The next event is one of this stage, and what may lie before it; or, with no stage, there is none."""

    stage: Stage | None
    between: Between
    then: Afterwards
    contiguity: Contiguity = Contiguity.RELAXED
    #: neither the event nor one passed over before it meets these
    until: tuple[Condition, ...] = ()
    #: the event does not meet these
    until_taken: tuple[Condition, ...] = ()


Afterwards: TypeAlias = Callable[[Between], list[Choice]]


@dataclass(frozen=True)
class Round:
    """One round of a group: the contiguity of its first stage, of later events of that stage, and what ends it."""

    link: Contiguity
    inner: Contiguity
    until: tuple[Condition, ...]


def first_choices(specification: Specification) -> list[Choice]:
    """What a match may begin with."""
    return _sequence(specification.parts, 0, _end, None)(NOTHING)


def _end(between: Between) -> list[Choice]:
    return [Choice(None, between, _nothing)]


def _nothing(between: Between) -> list[Choice]:
    return []


def _sequence(parts: Sequence[Stage | Not], index: int, after: Afterwards, around: Round | None) -> Afterwards:
    """Choices from the part of that index on; `after`: those behind all of them; `around`: the group's round."""
    if index == len(parts):
        return after
    part = parts[index]
    behind = _sequence(parts, index + 1, after, around)
    if isinstance(part, Stage):
        following = parts[index + 1] if index + 1 < len(parts) else None
        return _rounds(
            part,
            0,
            behind,
            following if isinstance(following, Not) else None,
            around,
            index == 0,
        )
    negative = part

    def with_not(between: Between) -> list[Choice]:
        if index + 1 == len(parts) and around is None:
            return behind(replace(between, last=negative))
        if negative.is_next:
            return behind(replace(between, not_next=(*between.not_next, negative.condition)))
        return behind(replace(between, forbidden=(*between.forbidden, negative.condition)))

    return with_not


def _rounds(
    stage: Stage, done: int, behind: Afterwards, following: Not | None, around: Round | None, is_head: bool
) -> Afterwards:
    """Choices when the stage (or group) has come `done` times: once more, then what is behind it."""

    def choices(between: Between) -> list[Choice]:
        found: list[Choice] = []
        may_end = done >= stage.least or (done == 0 and stage.is_optional)
        if stage.is_optional and done == 0:
            between = replace(between, greed=(), first_greed=between.first_greed + between.greed)
        if stage.most is None or done < stage.most:
            then = _rounds(stage, done + 1, behind, following, around, is_head)
            if stage.parts:
                link = stage.inner if done else stage.link
                until = () if stage.until is None else (stage.until,)
                found += _sequence(stage.parts, 0, then, Round(link, stage.inner, until))(between)
            else:
                found.append(_once(stage, done, between, then, following, around if is_head else None, around))
        if may_end:
            if stage.is_greedy and stage.is_loop:
                assert stage.condition is not None
                greed = Greed(stage.condition, stage.until)
                found += behind(replace(between, greed=(greed,)))
            else:
                found += behind(between)
        return found

    return choices


def _once(
    stage: Stage,
    done: int,
    between: Between,
    then: Afterwards,
    following: Not | None,
    head_of: Round | None,
    around: Round | None,
) -> Choice:
    if done > 0 and following is not None and not following.is_next:
        between = replace(between, forbidden=(*between.forbidden, following.condition))
    contiguity = stage.inner if done else stage.link
    if head_of is not None:
        contiguity = head_of.inner if done else head_of.link
    own = () if stage.until is None else (stage.until,)
    outer = () if around is None else around.until
    return Choice(stage, between, then, contiguity, outer + own if done else outer, outer + own)
