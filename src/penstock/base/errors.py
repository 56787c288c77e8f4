"""The hierarchy of all errors that Penstock raises on purpose, and suggestions for misspelt names.

The rule: `except PenstockError` catches everything that Penstock itself decided was wrong. Each error also inherits
from the Python class that a Python programmer expects, so that ordinary `except ValueError` works too: `ValueError` for
a bad value, `KeyError` for a missing name, `RuntimeError` where no other class fits. All of them survive pickling with
their attributes, because they travel from workers to the driver.

Which class to raise:

| class | also a | for |
| --- | --- | --- |
| `WrongValueError` | `ValueError` | an invalid value of the right type |
| `WrongTypeError` | `TypeError` | a value of an invalid type |
| `WrongTimeError` | `RuntimeError` | a call at the wrong time or in the wrong place |
| `ContractError` | `RuntimeError` | a user's class that violates its interface |
| `UnsupportedError` | `NotImplementedError` | a feature that Penstock does not support |
| `UnknownNameError` | `KeyError` | an unknown name |
| `UnknownMethodError` | `AttributeError` | a method that only objects of another kind have |
| `MissingPathError` | `FileNotFoundError` | a path that does not exist |
| `MisuseError` | `TypeError` | a user function in the wrong place: the job fails at once |
| `ConfigurationError` | `ValueError` | an invalid option: the job fails at once |
| `FormatError` | `ValueError` | data that cannot be read or written in its format |
| `CallTimeoutError` | `TimeoutError` | a call that took too long |
| `ResourceError` | `OSError` | a resource that the operating system refuses |
| `OperationError` | `RuntimeError` | an operation that fails for a reason outside the call |

The first eight are `CallError`s: they reject a call. In a job they are treated like the plain Python classes. If a user
function made the call, the job's error shows its traceback, and the restart strategy decides whether the job runs
again.

`did_you_mean` suggests the nearest known name to a user who misspelt one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

RECORD_TEXT_CHARS_MAX = 200

#: The name on package indexes. It differs from that of the package, because `penstock` on the public index is another
#: project.
DISTRIBUTION: Final = "penstock-streams"


def write_install_command(extra: str) -> str:
    """Return the command that installs an extra of this distribution, for an error message."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


class PenstockError(Exception):
    """Base of all errors that Penstock raises on purpose.

    With `suppresses_restart` a job fails at once: another attempt would fail with the same error.
    """

    suppresses_restart = False


class CallError(PenstockError):
    """A call, or the return value of a user function, is invalid. Subclasses give the reason."""


class WrongValueError(CallError, ValueError):
    """A value has the right type but is invalid."""


class WrongTypeError(CallError, TypeError):
    """A value has an invalid type."""


class WrongTimeError(CallError, RuntimeError):
    """Something was called at the wrong time or in the wrong place."""


class ContractError(CallError, RuntimeError):
    """A class from the user's program violates the interface that it implements."""


class UnsupportedError(CallError, NotImplementedError):
    """Penstock does not support the requested feature."""


class UnknownNameError(CallError, KeyError):
    """Nothing has the requested name."""

    __str__ = Exception.__str__


class UnknownMethodError(CallError, AttributeError):
    """An object lacks a method that objects of another kind have."""


class MissingPathError(CallError, FileNotFoundError):
    """The given path does not exist."""


class CallTimeoutError(PenstockError, TimeoutError):
    """A call exceeded its time limit."""


class ResourceError(PenstockError, OSError):
    """The operating system refuses what Penstock needs, such as a port."""


class OperationError(PenstockError, RuntimeError):
    """A requested operation failed for a reason outside the call."""


class StopIterationRaised(PenstockError, RuntimeError):
    """A function raised StopIteration, which a loop would mistake for the end of the records.

    Args:
        function: the function that raised it.
    """

    def __init__(self, function: str = "the function") -> None:
        super().__init__(function)

    def __str__(self) -> str:
        return f"{self.args[0]} raised StopIteration"


class ConfigurationError(PenstockError, ValueError):
    """A configuration option is missing, has the wrong type, or conflicts with another option."""

    suppresses_restart = True


class FormatError(PenstockError, ValueError):
    """Bytes could not be read in the declared format, or a value could not be written in it."""


class MisuseError(PenstockError, TypeError):
    """A user function is used in the wrong place, or returned something that cannot be used there.

    Fails a job at once, because another attempt would fail with the same error.
    """

    suppresses_restart = True


class UnknownFieldError(PenstockError, KeyError, ValueError):
    """A row, or a batch of columns, has no field with the requested name.

    It is a `KeyError`, as Python readers expect, and a `ValueError`, as PyFlink programs expect.
    """

    __str__ = Exception.__str__


class CheckpointError(PenstockError, RuntimeError):
    """A checkpoint or savepoint could not be taken, read, or removed."""


class ProtocolError(PenstockError, RuntimeError):
    """A peer violated the wire protocol, or a message arrived that is not allowed in the current state."""


class JobExecutionError(PenstockError, RuntimeError):
    """A job failed for good: no restarts are left.

    Attributes:
        job_name: the name of the job, as given to `execute`.
        cause_text: the cause as text; the original exception may live in another process.
    """

    def __init__(self, job_name: str, cause_text: str) -> None:
        super().__init__(job_name, cause_text)
        self.job_name = job_name
        self.cause_text = cause_text

    def __str__(self) -> str:
        return f"job {self.job_name!r} failed: {self.cause_text}"


class UserFunctionError(JobExecutionError):
    """A user function raised while processing a record.

    Attributes:
        operator_name: the operator's name, as given by the user.
        subtask_index: the subtask, counted from 0.
        parallelism: the operator's number of subtasks.
        record_text: the record's repr, cut to `RECORD_TEXT_CHARS_MAX` characters; empty when no record was at hand.
        traceback_text: the user's traceback, as text.
        what: the function that was called, such as `the key selector`; empty for the operator's own function.
    """

    def __init__(
        self,
        job_name: str,
        operator_name: str,
        subtask_index: int,
        parallelism: int,
        record_text: str,
        traceback_text: str,
        what: str = "",
    ) -> None:
        lines = traceback_text.strip().splitlines()
        super().__init__(job_name, lines[-1] if lines else "unknown cause")
        self.operator_name = operator_name
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        self.record_text = shorten(record_text)
        self.traceback_text = traceback_text
        self.what = what

    def __str__(self) -> str:
        location = f"operator {self.operator_name!r}, subtask {self.subtask_index + 1}/{self.parallelism}"
        context = f", in {self.what}" if self.what else ""
        record = f"\nrecord: {self.record_text}" if self.record_text else ""
        return f"{location}{context}{record}\n{self.traceback_text.rstrip()}"

    def __reduce__(self) -> tuple[type[UserFunctionError], tuple[str, str, int, int, str, str, str]]:
        location = (self.job_name, self.operator_name, self.subtask_index, self.parallelism)
        return type(self), (*location, self.record_text, self.traceback_text, self.what)


class SlotsUnavailableError(JobExecutionError):
    """The cluster did not provide the slots that the job needs within the time allowed.

    Attributes:
        wanted: the number of slots the job needs.
        got: the number of slots it got.
        reason: why it got no more, and what to do.
    """

    def __init__(self, job_name: str, wanted: int, got: int, reason: str = "") -> None:
        super().__init__(job_name, f"wanted {wanted} slots, got {got}{reason and ': '}{reason}")
        self.wanted = wanted
        self.got = got
        self.reason = reason

    def __reduce__(self) -> tuple[type[SlotsUnavailableError], tuple[str, int, int, str]]:
        return type(self), (self.job_name, self.wanted, self.got, self.reason)


def short_repr(value: object, chars_max: int = RECORD_TEXT_CHARS_MAX) -> str:
    """Return `repr(value)` in at most `chars_max` characters; never raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - any repr may raise anything
        text = f"<a {type(value).__qualname__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def shorten(text: str, chars_max: int = RECORD_TEXT_CHARS_MAX) -> str:
    """Return `text` in at most `chars_max` characters, ending in `...` if it was cut."""
    if len(text) <= chars_max:
        return text
    return text[: chars_max - 3] + "..."


#: the least similarity, from 0 to 1, for one name to be suggested for another
LIKENESS_MIN: Final = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, ignoring case, or None if no name is similar."""
    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=LIKENESS_MIN)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message, suggesting the nearest name; empty if no name is similar."""
    match = nearest(name, known)
    return "" if match is None else f"; did you mean '{match}'?"
