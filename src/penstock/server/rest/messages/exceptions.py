"""The failures of a job, newest first.

An error as the result of an operation, in the form that Flink's clients read.

An error for Flink's own client: a `SerializedThrowable` object in Java's serialization format.

Without this object, the client does not recognize a failure and polls forever. The object holds only displayed data: no
cause, no Java stack, and no other error inside it.
"""

from __future__ import annotations

import re
import struct
import traceback
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.base.secrets import hide
from penstock.runtime.job.view import FailureRecord, JobView

#: An error's class, in the last line of a traceback or at the beginning of an error's text.
_NAMED: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning))(?::|\s*$)", re.MULTILINE)
_UNNAMED: Final = "JobExecutionError"


class ExceptionEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A failure that occurred while the job handled another one."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: Mapping[str, str]
    task_name: str | None
    endpoint: str | None
    task_manager_id: str | None


class RootException(ExceptionEntry, frozen=True, rename="camel", kw_only=True):
    """A failure of the job."""

    concurrent_exceptions: list[ExceptionEntry]


class ExceptionHistory(msgspec.Struct, frozen=True):
    """The failures of a job, newest first."""

    entries: list[RootException]
    truncated: bool


class JobExceptions(msgspec.Struct, frozen=True):
    """Flink's exception history, and the top-level fields that it deprecates."""

    exception_history: ExceptionHistory = msgspec.field(name="exceptionHistory")
    root_exception: str | None = msgspec.field(name="root-exception", default=None)
    timestamp: int | None = None
    all_exceptions: list[Any] = msgspec.field(name="all-exceptions", default_factory=list)
    truncated: bool = False


def exception_name(text: str) -> str:
    """Return the class of the error in a failure's text: the last error class that begins a line."""
    names = _NAMED.findall(text)
    return str(names[-1]) if names else _UNNAMED


def job_exceptions(view: JobView, count_max: int, labels: Mapping[str, str]) -> JobExceptions:
    """Return the newest failures with these labels, at most `count_max`."""
    failures = [failure for failure in view.failures if labels.items() <= failure.labels.items()]
    entries = [
        RootException(
            **_fields(failure),
            concurrent_exceptions=[ExceptionEntry(**_fields(concurrent)) for concurrent in failure.concurrent],
        )
        for failure in failures[:count_max]
    ]
    truncated = len(failures) > count_max
    if not view.failures:
        return JobExceptions(ExceptionHistory(entries, truncated))
    newest = view.failures[0]
    return JobExceptions(ExceptionHistory(entries, truncated), newest.text, newest.at_ms, [], truncated)


def _fields(failure: FailureRecord) -> dict[str, Any]:
    endpoint = None if failure.host is None else f"{failure.host}:{failure.process_id}"
    return {
        "exception_name": exception_name(failure.text),
        "stacktrace": failure.text,
        "timestamp": failure.at_ms,
        "failure_labels": failure.labels,
        "task_name": failure.task,
        "endpoint": endpoint,
        "task_manager_id": failure.worker_id,
    }


#: The maximum number of characters of a text; such a Java string has at most 65,535 bytes.
CHARS_MAX: Final = 10_000

_STREAM: Final = b"\xac\xed\x00\x05"
_NULL, _OBJECT, _STRING, _CLASS, _END = b"p", b"s", b"t", b"r", b"x"
#: Class flags: the fields follow in order; or the class has a method that writes them, followed by an end mark.
_PLAIN, _OWN_METHOD = b"\x02", b"\x03"
_TEXT: Final = "Ljava/lang/String;"


def serialized_throwable(class_name: str, text: str) -> bytes:
    """Serialize an error, with its text as its stack trace."""
    fields = [("fullStringifiedStackTrace", _TEXT), ("originalErrorClassName", _TEXT)]
    classes = [
        _class("org.apache.flink.util.SerializedThrowable", 0x65169DF51FA713F3, _PLAIN, fields),
        _class("java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _PLAIN, []),
        _class("java.lang.Throwable", 0xD5C635273977B8CB, _OWN_METHOD, [("detailMessage", _TEXT)]),
    ]
    of_throwable, of_flink = _string(text) + _END, _string(text) + _string(class_name)
    return b"".join([_STREAM, _OBJECT, *classes, _NULL, of_throwable, of_flink])


def _class(name: str, version: int, flags: bytes, fields: list[tuple[str, str]]) -> bytes:
    described = b"".join(b"L" + _utf(field) + _string(kind) for field, kind in fields)
    head = _CLASS + _utf(name) + struct.pack(">Q", version) + flags + struct.pack(">H", len(fields))
    return head + described + _END


def _string(text: str) -> bytes:
    return _STRING + _utf(text[:CHARS_MAX])


def _utf(text: str) -> bytes:
    """Encode Java's modified UTF-8: NUL takes two bytes, and supplementary characters become two surrogates."""
    units = text.encode("utf-16-be", "surrogatepass")
    characters = "".join(chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    encoded = characters.encode("utf-8", "surrogatepass").replace(b"\x00", b"\xc0\x80")
    return struct.pack(">H", len(encoded)) + encoded


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """The class of an error, its text, and both as a Java object (base64) for Flink's client."""

    class_: str = msgspec.field(name="class")
    stack_trace: str
    serialized_throwable: bytes


def failure_cause(error: BaseException) -> FailureCause:
    """Convert an error to its class and text; Python's own traceback is left out."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = hide("".join(traceback.format_exception_only(error)).strip())
    return FailureCause(name, text, serialized_throwable(name, text))
