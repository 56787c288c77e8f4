"""Pickling by value: a cloudpickle that keeps the file names of code, and shipping of the user's script to workers.

**File names.** Since 3.1.3, cloudpickle replaces the file name of code with `<dynamic-code>`, so that the bytes do not
depend on where a function is defined. `Pickler` keeps it, so that tracebacks of functions show file and line: users
need the location more than we need such bytes.

**The user's script.** A pickle refers to classes by module. The script's classes are in `__main__`, which is a
different program in a worker. The client therefore packs the definitions of its `__main__`, and `as_main` installs them
while a worker runs tasks of the job. Plain pickle then finds these classes by name everywhere: in records, splits,
committables and state. In checkpoints they follow the same rules as classes of modules.

An instance always has exactly the class that the user's functions refer to. cloudpickle, which carries those functions,
assigns each class an id and creates one class per id in a process, and the classes packed here use the same ids.

Definitions that cannot be packed are left out, and the reason is raised when a pickle refers to them. Definitions are
unpickled only on first use, so nothing is imported unnecessarily.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, Final

import cloudpickle

from penstock.base.errors import PenstockError, shorten

#: The file name that cloudpickle gives to all code.
_NO_FILE: Final = "<dynamic-code>"


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    make, parts, *rest = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return (make, tuple(code.co_filename if part == _NO_FILE else part for part in parts), *rest)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps file names. Otherwise cloudpickle's own: classes and functions of modules are pickled by reference."""

    dispatch_table: ClassVar[Mapping[type, Any]] = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )


def dumps(value: Any) -> bytes:
    """Pickle a value, including functions and classes that no module contains. Raises whatever error prevents that."""
    file = io.BytesIO()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()


MAIN: Final = "__main__"
#: The size limit of a class or function, including everything it refers to; a program itself may be larger.
ITEM_BYTES_MAX: Final = 1 << 20
_CLOUDPICKLE: Final = "cloudpickle.cloudpickle"


class ScriptError(PenstockError, RuntimeError):
    """Raised when a worker needs a class or function of the user's script that cannot be shipped to it."""

    suppresses_restart = True


def pack_script() -> bytes:
    """Pack the classes and functions that this process's `__main__` defines, each separately, for `as_main`."""
    packed: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for name, value in list(vars(sys.modules[MAIN]).items()):
        if not isinstance(value, type | FunctionType) or (value.__module__, value.__qualname__) != (MAIN, name):
            continue
        try:
            packed[name] = _pickle_item(value)
        except Exception as error:  # noqa: BLE001 - pickling runs user code, which may raise anything
            left_out[name] = shorten(f"{type(error).__name__}: {error}")
    return pickle.dumps((packed, left_out), protocol=5) if packed or left_out else b""


@contextmanager
def as_main(script: bytes) -> Iterator[None]:
    """Install the packed script as `__main__` within the block."""
    if not script:
        yield
        return
    before = sys.modules[MAIN]
    sys.modules[MAIN] = _Script(*pickle.loads(script))
    try:
        yield
    finally:
        sys.modules[MAIN] = before


class _Script(ModuleType):
    """A `__main__` that unpickles its contents on first access."""

    def __init__(self, packed: Mapping[str, bytes], left_out: Mapping[str, str]) -> None:
        super().__init__(MAIN)
        self.__dict__.update(_packed=packed, _left_out=left_out)

    def __getattr__(self, name: str) -> Any:
        packed = self.__dict__["_packed"].get(name)
        if packed is not None:
            try:
                value = _Unpickler(BytesIO(packed)).load()
            except Exception as error:
                raise ScriptError(
                    _explain(name, "unpickled in a worker", f"{type(error).__name__}: {error}")
                ) from error
            setattr(self, name, value)
            return value
        if name in self.__dict__["_left_out"]:
            raise ScriptError(_explain(name, "sent to workers", self.__dict__["_left_out"][name]))
        raise AttributeError(f"the script (__main__) had no {name!r} at its top level when the job was submitted")

    def __repr__(self) -> str:
        return "the script (__main__) as it was when the job was submitted"


class _Unpickler(pickle.Unpickler):
    """Does not overwrite an existing class: it may have arrived with the program and been modified since."""

    def find_class(self, module: str, name: str) -> Any:
        resolved = super().find_class(module, name)
        if (module, name) != (_CLOUDPICKLE, "_class_setstate"):
            return resolved
        return lambda cls, state: cls if state[0].keys() <= vars(cls).keys() else resolved(cls, state)


class _BoundedFile(BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > ITEM_BYTES_MAX:
            raise ValueError(f"it refers to more than {ITEM_BYTES_MAX >> 20} MiB of data")
        return super().write(data)


def _pickle_item(value: Any) -> bytes:
    file = _BoundedFile()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def _explain(name: str, action: str, reason: str) -> str:
    return (
        f"{name!r} of the script (__main__) cannot be {action}: {reason}; move it into a module that workers can "
        "import, "
        "or remove that reference"
    )
