"""The classes and functions of the user's script, on their way to workers.

A pickle names classes by their modules. Those of the script are in `__main__`, and in a worker that is another program.
So the client packs what its `__main__` defines, and `as_main` puts it there while a worker runs tasks of the job. Then
plain pickle finds these classes by name everywhere: in records, splits, committables and state. In checkpoints they are
subject to the same rules as classes of modules.

An instance is always of the very class that the program's functions refer to. This holds because cloudpickle, which
carries those functions, gives each class an id and makes one class per id in a process. Classes packed here have the
same ids.

What cannot be packed is left out, and the reason is raised when a pickle asks for it. What no pickle asks for is never
unpickled, so nothing is imported for its sake.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any, Final

from penstock.base.errors import PenstockError, shorten
from penstock.codecs import cloud

MAIN: Final = "__main__"
#: The size limit of a class or function with all that it refers to; in a program it may be larger.
ITEM_BYTES_MAX: Final = 1 << 20
_CLOUDPICKLE: Final = "cloudpickle.cloudpickle"


class ScriptError(PenstockError, RuntimeError):
    """A class or function of the user's script is needed in a worker, and cannot be brought there."""

    suppresses_restart = True


def pack_script() -> bytes:
    """The classes and functions that this process's `__main__` defines, each by itself; for `as_main`."""
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
    """Let `__main__` be the packed script within the block."""
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
    """A `__main__` whose contents are unpickled when they are asked for."""

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
    """Leaves alone a class that is there already: it may have come with the program, and have changed since."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if (module, name) != (_CLOUDPICKLE, "_class_setstate"):
            return found
        return lambda cls, state: cls if state[0].keys() <= vars(cls).keys() else found(cls, state)


class _BoundedFile(BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > ITEM_BYTES_MAX:
            raise ValueError(f"it refers to more than {ITEM_BYTES_MAX >> 20} MiB of data")
        return super().write(data)


def _pickle_item(value: Any) -> bytes:
    file = _BoundedFile()
    cloud.Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def _explain(name: str, what: str, reason: str) -> str:
    return (
        f"{name!r} of the script (__main__) cannot be {what}: {reason}; move it into a module that workers can import, "
        "or remove that reference"
    )
