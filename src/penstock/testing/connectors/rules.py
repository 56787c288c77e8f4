"""The rules that sources and sinks must keep, by short names, and the error that names the broken rule."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.errors import WrongValueError, short_repr
from penstock.codecs.pickling import PicklingError

#: The contract of a source.
SOURCE_RULES: Final[Mapping[str, str]] = {
    "picklable": "sources, splits and snapshots are pickled: they hold descriptions and positions, not handles",
    "raises": "a call that the protocol allows does not raise",
    "batch-size": "poll_next returns 1 to `max_records` records, or a whole batch of columns, or a status",
    "complete": "undisturbed, a source gives every record once",
    "order": "the records of a split come in their order",
    "asks-once": "a reader without splits asks for one once, and waits for the answer",
    "late-split": "no split is assigned to a reader after signal_no_more_splits for it",
    "end": "a bounded source ends, and a reader ends only when it has been told that no split will follow",
    "finished-split": "a reader that has ended has no split in its snapshot",
    "position": "a reader's snapshot is its splits, each just after the last record that poll_next returned",
    "enumerator-state": "the enumerator's snapshot is all that it has not assigned yet, and nothing that it has",
    "late-barrier": "a reader may hand out records between the snapshot of the enumerator and its own",
    "rescale": "splits of snapshots may go to other readers, and to another number of them",
    "splits-back": "splits that come back are assigned again; what the reader had asked for or been told is forgotten",
    "replay": "what follows a position is the same whenever it is read",
    "snapshot-alias": "a snapshot does not change while the source goes on",
    "dealt-ahead": "in BATCH and MICRO_BATCH a reader gets all its splits, and no_more_splits, before it reads",
    "open-split": "batches of a split come while it is open, and while splits are open each batch names one",
    "close-split": "a split is closed in the poll_next after the one that returned its last batch",
    "paused": "a paused split gives no records until it is resumed",
    "close": "close may come at any moment, twice, and before start; it harms nothing that was read or follows",
}

#: The contract of a sink.
SINK_RULES: Final[Mapping[str, str]] = {
    "picklable": "sinks, committables and writer state are pickled: they hold names and rows, not handles",
    "raises": "a call that the protocol allows does not raise",
    "complete": "what is committed is seen, each record once",
    "order": "records of one key are seen in the order in which they were written",
    "visible-early": "nothing is seen before it is committed",
    "prepared-once": "prepare_commit hands out what was written since the last call, and nothing a second time",
    "prepared-lost": "a committable is enough to commit, in another process, when its writer is closed or dead",
    "close": "close may come at any moment and twice; it shows nothing, and spares what was prepared",
    "commit-twice": "a committable may be committed again, by the same committer or another, and shows nothing twice",
    "commit-partly": "of several committables some may have been committed before a failure; the rest follows",
    "subsumed": "a checkpoint commits what was prepared for earlier ones that did not complete",
    "empty-checkpoint": "checkpoints without records change nothing",
    "restart": "after a failure at any step every record is seen once",
    "rescale": "writer state and committables may go to other subtasks, and to another number of them",
    "names": "two runs of one task, at the same time, use names of their own; only one of them is committed",
    "zombie": "a writer of an earlier attempt that lives on shows nothing and harms nothing",
    "savepoint": "what a savepoint names can be committed later than all that came after it, and shows nothing twice",
    "one-commit": "a sink that commits globally makes one commit of a checkpoint",
    "epochs": "in MICRO_BATCH each epoch has writers of its own, and what did not count is never seen",
    "commit-log": "in BATCH a sink with a CommitLog shows all or nothing",
    "leftovers": "when a job has ended nothing is left of runs that did not count",
    "nothing-lost": "with at least once, what was written before a completed checkpoint is seen",
}

STEPS_SHOWN: Final = 8
VALUES_SHOWN: Final = 12
#: The last step that `spread` returns if there are few places; most runs have more steps.
SPREAD_TO: Final = 30


class ConformanceError(AssertionError):
    """A source or a sink breaks a rule of its protocol.

    Args:
        subject: the class of the source or sink.
        rule: the rule's short name, a key of `SOURCE_RULES` or `SINK_RULES`.
        sentence: the rule.
        case: the test case, with its parallelism and batch sizes.
        place: the point of the run where the kit intervened.
        steps: the last steps.
        expected: the expected observation.
        seen: the actual observation.
    """

    def __init__(
        self,
        subject: str,
        rule: str,
        sentence: str,
        case: str,
        place: str,
        steps: Sequence[str],
        expected: str,
        seen: str,
    ) -> None:
        self.rule, self.case, self.place, self.steps = rule, case, place, tuple(steps)
        self.expected, self.seen = expected, seen
        lines = [f"{subject} breaks the rule {rule!r}: {sentence}", f"  case: {case}" if case else ""]
        lines += [f"  {place}", "  …"] if place else []
        lines += [f"  {step}" for step in steps]
        lines += [f"  expected: {expected}", f"  seen: {seen}"]
        super().__init__("\n".join(filter(None, lines)))


@dataclass
class Steps:
    """The steps of one run, numbered from 1, and the rules that its failures are reported against."""

    subject: str
    rules: Mapping[str, str]
    case: str = ""
    place: str = ""
    count: int = 0
    #: the last steps
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=STEPS_SHOWN))

    def note(self, text: str) -> None:
        """Record a step."""
        self.count += 1
        self.lines.append(f"step {self.count}: {text}")

    def add(self, text: str) -> None:
        """Append to the text of the last step."""
        self.lines[-1] += text

    def mark(self, what: str) -> None:
        """Record an intervention of the kit after the last step."""
        self.place = f"{what} after {self.lines[-1] if self.lines else 'nothing'}"

    def broken(self, rule: str, expected: str, seen: str) -> ConformanceError:
        """Return the error for a broken rule."""
        sentence = self.rules[rule]
        steps = list(self.lines)
        return ConformanceError(self.subject, rule, sentence, self.case, self.place, steps, expected, seen)

    @contextmanager
    def call(self, rule: str = "raises", passing: type[Exception] = ConformanceError) -> Iterator[None]:
        """Guard a call of the connector: an exception breaks the rule, unless it is of type `passing`."""
        try:
            yield
        except (ConformanceError, passing):
            raise
        except PicklingError as error:
            raise self.broken("picklable", "what can be pickled and unpickled", str(error)) from error
        except Exception as error:
            raise self.broken(rule, "no error", f"{type(error).__name__}: {error}") from error


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise an error for unknown case names."""
    for name in names:
        if name not in known:
            raise WrongValueError(f"there is no case {name!r}; there are {', '.join(known)}")


def spread(count: int) -> list[int]:
    """Return `count` step numbers of a run, starting at 1: consecutive at first, then increasingly far apart."""
    ratio = SPREAD_TO ** (1 / (count - 1)) if count > 1 else 1.0
    numbers = [1] if count > 1 else [10]
    while len(numbers) < count:
        numbers.append(max(numbers[-1] + 1, round(numbers[-1] * ratio)))
    return numbers


def countable(value: Any) -> Any:
    """Return the value, or its representation if it is not hashable."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def difference(seen: Sequence[Any], expected: Sequence[Any]) -> tuple[Counter[Any], Counter[Any]]:
    """Return the missing and the surplus values, as multisets."""
    got, wanted = Counter(map(countable, seen)), Counter(map(countable, expected))
    return wanted - got, got - wanted


def told(counts: Counter[Any]) -> str:
    """Return a text with the first values of a multiset."""
    values = [short_repr(value) for value, count in counts.items() for _ in range(count)]
    more = len(values) - VALUES_SHOWN
    return ", ".join(values[:VALUES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def told_difference(missing: Counter[Any], extra: Counter[Any], expected: Sequence[Any]) -> str:
    """Describe a difference: missing, duplicate and unexpected values."""
    expected_values = set(map(countable, expected))
    twice = Counter({value: count for value, count in extra.items() if value in expected_values})
    parts = [f"missing: {told(missing)}"] if missing else []
    parts += [f"too often: {told(twice)}"] if twice else []
    unknown = extra - twice
    parts += [f"never expected: {told(unknown)}"] if unknown else []
    return "; ".join(parts)


def some(values: Sequence[Any]) -> str:
    """Return a text with the first values of a sequence."""
    head = ", ".join(short_repr(value) for value in values[:3])
    return f"[{head}, … {len(values)} in all]" if len(values) > 3 else f"[{head}]"


def out_of_order(seen: Sequence[Any], expected: Sequence[Any], key_of: Any) -> str | None:
    """Describe where the records of a key are in a different order than expected; None if nowhere."""
    orders: list[dict[Any, list[Any]]] = []
    for values in (seen, expected):
        by_key: dict[Any, list[Any]] = {}
        for value in values:
            by_key.setdefault(countable(key_of(value)), []).append(value)
        orders.append(by_key)
    for key, wanted in orders[1].items():
        got = orders[0].get(key, [])
        for position, (actual, other) in enumerate(zip(got, wanted, strict=False)):
            if actual != other:
                return f"of {key!r}: {short_repr(actual)} instead of {short_repr(other)} at place {position}"
    return None
