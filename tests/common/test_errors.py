"""Errors that users can meet: one family, each also the built-in class that Python programmers expect."""

import ast
import builtins
import pickle
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import penstock
from penstock.base.errors import (
    CallError,
    JobExecutionError,
    MissingPathError,
    PenstockError,
    ResourceError,
    SlotsUnavailableError,
    StopIterationRaised,
    UnknownNameError,
    UserFunctionError,
)
from penstock.connectors.postgres.cdc.replication import ReplicationRefused
from penstock.formats.file_format import MalformedMessageError, MalformedRecordError
from penstock.runtime.connector import RecordError
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.task.failures import describe_failure
from penstock.state.keys import RefusedKeyError
from penstock.storage.leadership import DeposedError

PACKAGE = Path(penstock.__file__).parent

# What is raised where, for a reason other than to tell a user: file::function, and the built-in class.
# fmt: off
ALLOWED = {
    "the same module catches it and raises a FormatError or a StateError with the record": (
        ("drivers/spark/frames.py::_fields_of_all", "ValueError"),
        ("formats/json.py::_plain", "TypeError"),
        ("state_processor/table.py::_fields", "TypeError"),
        ("connectors/clickhouse_source.py::_check_truths", "ValueError"),
        ("connectors/postgres/text_columns.py::_*", "ValueError"),
    ),
    "readers and writers of files catch it and name the file and the line, or the record": (
        ("formats/file_format.py::get_field_values", "ValueError"),
        ("formats/file_format.py::_*", "ValueError"),
    ),
    "ConfigOption.convert catches it and raises a ConfigurationError with the key": (
        ("base/config_options.py::*", "ValueError"),
        ("base/server_options.py::_to_retained", "ValueError"),
    ),
    "the same module catches it": (
        ("gelly/csv_reader.py::_bool", "ValueError"),
        ("formats/avro.py::_snappy", "ValueError"),
        ("codecs/cloud.py::_BoundedFile.write", "ValueError"),
        ("connectors/delta/commits.py::DeltaCommitter._check_files", "FileNotFoundError"),
        ("connectors/socket_text.py::_SocketReader._connect", "OSError"),
        ("runtime/task/channels/result_partition.py::_Routes.*", "IndexError"),
        ("drivers/spark/sockets.py::_listen", "OSError"),
        ("sql/catalogs/file_catalog.py::_read", "KeyError"),
        ("server/history/server.py::Archives.find_answer", "KeyError"),
        ("connectors/http_client.py::HttpClient.*", "ConnectionError"),
        ("connectors/mysql/values.py::_convert", "ValueError"),
        ("cdc/sources.py::_make_event", "ValueError"),
        ("cdc/sources.py::_row", "ValueError"),
    ),
    "the history server catches it, skips the archive, and logs the reason": (
        ("server/history/archive.py::Directory.read", "ValueError"),
        ("server/history/archive.py::parse_archive", "ValueError"),
    ),
    "the subscription, the scan or the sink catches it, and connects again": (
        ("connectors/kafka/share_group.py::KafkaShareGroupSource.*", "ConnectionError"),
        ("connectors/mqtt.py::connect", "ConnectionError"),
        ("connectors/mqtt.py::_Session._turn", "ConnectionError"),
        ("connectors/mqtt.py::_Publisher._publish", "ConnectionError"),
        ("connectors/nats.py::NatsServers.connect", "ConnectionError"),
        ("connectors/nats.py::_Pull._consume", "ConnectionError TimeoutError"),
        ("connectors/clickhouse_source.py::Query.*", "ConnectionError"),
    ),
    "what a file system raises of its own accord": (
        ("codecs/file_systems.py::rename", "FileExistsError"),
        ("codecs/file_systems.py::_to_os_error", "FileNotFoundError PermissionError OSError"),
        ("codecs/hadoop_files.py::HadoopFiles._call", "OSError"),
        ("codecs/hadoop_files.py::HadoopFiles.mv", "FileExistsError"),
        ("codecs/hadoop_files.py::HadoopFile._fetch_range", "OSError"),
    ),
    "storage/files.py catches it and raises a CheckpointError": (
        ("base/durable_files.py::publish", "FileExistsError"),
    ),
    "an error of the system with its own class and number, and the path": (
        ("base/durable_files.py::errors_name", "OSError"),
    ),
    "the event loop catches it, refuses the connection or lets it wait, and goes on": (
        ("connectors/http_server.py::BoundedSocket.accept", "ConnectionAbortedError"),
        ("connectors/http_server.py::BoundedSocket.accept", "BlockingIOError"),
    ),
    "the protocol of pickle": (
        ("drivers/spark/sockets.py::JobKeys.__reduce__", "TypeError"),
    ),
    "a fault that the simulator plans, which the code under test must take for a real one": (
        ("drivers/simulation/functions.py::*", "ConnectionError"),
        ("drivers/simulation/worker.py::*", "OSError"),
        ("drivers/simulation/object_store.py::*", "OSError"),
        ("drivers/simulation/object_store.py::*", "OSError"),
        ("drivers/simulation/stepwise_history.py::*", "OSError"),
        ("drivers/simulation/stepwise_world.py::*", "OSError"),
        ("drivers/simulation/stepwise_world.py::*", "OSError"),
        ("drivers/simulation/checkpoint_store.py::*", "OSError"),
    ),
}
#: What Python asks of methods of these names, in any class.
PROTOCOLS = {
    "AttributeError": ("__getattr__",),
    "KeyError": ("__getitem__", "__delitem__", "__missing__", "pop", "popitem"),
    "StopIteration": ("__next__",),
}
# fmt: on

#: Classes that are no errors of Penstock: the runtime, or the simulator, raises and catches them.
INTERNAL = {
    "SimulationFailure",
    "_Refusal",
    "AssignerError",
    "Cancelled",
    "FusedError",
    "HasEnded",
    "Incompatible",
    "ConformanceError",
    "DriverGone",
    "DriverKilled",
    "Failure",
    "Killed",
    "MasterKilled",
    "PlannedError",
    "_AskedError",
    "_Temporary",
    "QueryFailed",
    "PlanTaken",
    "ReadingStopped",
    "RestError",
    "StageError",
    "TaskDied",
    "WorkerKilled",
    "_Killed",
    "_Later",
    "_NotSimpleError",
    "_OtherError",
    "_UnfitError",
}

PLACES = [(place, names.split()) for places in ALLOWED.values() for place, names in places]


def raised_builtins(node: ast.AST, function: str = "") -> Iterator[tuple[int, str, str]]:
    """Line, function and class of each built-in exception that is raised, or made to be raised by the caller.

    An AssertionError tells of a bug, not of a mistake. A bare NotImplementedError marks an abstract method.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    made: ast.expr | None = None
    if isinstance(node, ast.Raise | ast.Return):
        made = node.exc if isinstance(node, ast.Raise) else node.value
    name = made.func if isinstance(made, ast.Call) else made
    if isinstance(name, ast.Name):
        found = getattr(builtins, name.id, None)
        is_marker = name is made and (isinstance(node, ast.Return) or found is NotImplementedError)
        if isinstance(found, type) and issubclass(found, Exception) and found is not AssertionError and not is_marker:
            yield name.lineno, function, name.id
    for child in ast.iter_child_nodes(node):
        yield from raised_builtins(child, function)


def is_allowed(file: str, function: str, name: str) -> bool:
    """Whether the list, or a protocol of Python, allows the class there."""
    place = f"{file}::{function}"
    by_protocol = function.rpartition(".")[2] in PROTOCOLS.get(name, ())
    return by_protocol or any(name in names and fnmatchcase(place, pattern) for pattern, names in PLACES)


@cache
def all_raised() -> list[tuple[str, int, str, str]]:
    """The same of all files of the package, with the file."""
    return [
        (path.relative_to(PACKAGE).as_posix(), line, function, name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, function, name in raised_builtins(ast.parse(path.read_text()))
    ]


def test_users_meet_errors_of_penstock_only():
    found = [
        f"{file}:{line}: {name} in {function}"
        for file, line, function, name in all_raised()
        if not is_allowed(file, function, name)
    ]
    assert not found, "\n".join(["raise a class of penstock.base.errors, or add the place to ALLOWED:", *found])


def test_every_place_on_the_list_is_needed():
    raised = [(f"{file}::{function}", name) for file, _, function, name in all_raised()]
    for pattern, names in PLACES:
        for name in names:
            assert any(name == other and fnmatchcase(place, pattern) for place, other in raised), (pattern, name)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("raise ValueError('no')", ["ValueError"]),
        ("raise TimeoutError", ["TimeoutError"]),
        ("def f():\n    return TypeError('no')", ["TypeError"]),
        ("def f():\n    raise NotImplementedError", []),
        ("raise NotImplementedError('no')", ["NotImplementedError"]),
        ("raise AssertionError('no')", []),
        ("raise WrongValueError('no')", []),
        ("raise error", []),
    ],
)
def test_the_walk_sees_what_is_raised(source, found):
    assert [name for _, _, name in raised_builtins(ast.parse(source))] == found


def family(base: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    """All classes of errors that the package defines, and `base`."""
    yield base
    for cls in base.__subclasses__():
        if cls.__module__.startswith("penstock."):
            yield from family(cls)


def all_classes() -> list[type[PenstockError]]:
    for module in walk_packages(penstock.__path__, "penstock."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return sorted(set(family()) - {PenstockError, CallError}, key=lambda cls: cls.__qualname__)


def test_no_other_class_is_an_exception():
    all_classes()
    unseen, found = [BaseException], set()
    while unseen:
        subclasses = set(unseen.pop().__subclasses__()) - {PenstockError}
        unseen += subclasses
        found |= {cls.__name__ for cls in subclasses if cls.__module__.startswith("penstock.")}
    assert found - {cls.__name__ for cls in family()} == INTERNAL


ARGUMENTS = {
    JobExecutionError: ("job", "no"),
    DeposedError: ("job", "no"),
    UserFunctionError: ("job", "map", 0, 1, "1", "ValueError: no", "open()"),
    SlotsUnavailableError: ("job", 8, 3, "no"),
    MalformedMessageError: ("orders-3", 7, "no", b"{"),
    MalformedRecordError: ("a.json", 7, "no", "{"),
    UserCodeError: ("map", 1, "no"),
    RecordError: (1, "no"),
    RefusedKeyError: (3, "no"),
    ReplicationRefused: ("slot", "no", b"55006"),
}


def test_every_error_keeps_its_message_and_attributes_between_processes():
    for cls in all_classes():
        error = cls(*ARGUMENTS.get(cls, ("no",)))
        other = pickle.loads(pickle.dumps(error))
        assert type(other) is cls
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
        assert "no" in str(error), cls


def test_every_error_is_an_error_of_python_too():
    for cls in all_classes():
        others = [base for base in cls.__mro__ if base.__module__ == "builtins"]
        assert set(others) - {Exception, BaseException, object}, cls


def test_messages_are_shown_as_written():
    """A KeyError shows the repr of its message."""
    assert str(UnknownNameError("there is no 'x'")) == "there is no 'x'"
    assert str(MissingPathError("there is no 'x'")) == "there is no 'x'"
    assert ResourceError(98, "in use").errno == 98
    assert str(StopIterationRaised("the assigner")) == "the assigner raised StopIteration"


def test_an_error_that_answers_a_call_leaves_restarts_to_the_strategy():
    """Another attempt is made after it, as after the plain Python class."""
    for cls in family(CallError):
        failure = describe_failure(cls("no"), "map")
        assert not failure.suppresses_restart
        assert not failure.is_final_at_first
        assert failure.is_outside == issubclass(cls, OSError)
