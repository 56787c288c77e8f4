"""Types of messages of Protocol Buffers: by the class that `protoc` made, or by a file of descriptors."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.base.errors import ConfigurationError, UnsupportedError


def need_protobuf() -> None:
    """Raises UnsupportedError, with what to install, where the library is missing."""
    try:
        import google.protobuf  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            'Protocol Buffers need the library protobuf, here and on every worker: pip install "penstock[protobuf]"'
        ) from error


class ProtobufType:
    """A type of message. It pickles as what it was made of.

    Args:
        name: of a class, its module and name, as in `shop.orders_pb2:Order` or `shop.orders_pb2.Order`; with
            descriptors, the message's full name, as in `shop.Order`.
        descriptors: a serialised `FileDescriptorSet`, such as `protoc --include_imports --descriptor_set_out` writes;
            None for a class.

    Raises:
        ConfigurationError: if there is no such message.
        NotImplementedError: if the library is not installed.
    """

    def __init__(self, name: str, descriptors: bytes | None = None) -> None:
        need_protobuf()
        self._parts = name, descriptors
        self.message_class: Any = _imported(name) if descriptors is None else _described(name, descriptors)

    @staticmethod
    def of_file(name: str, path: str) -> ProtobufType:
        """The message of a name in a file of descriptors.

        Raises:
            ConfigurationError: if the file cannot be read, or there is no such message in it.
        """
        try:
            with open(path, "rb") as file:
                return ProtobufType(name, file.read())
        except OSError as error:
            raise ConfigurationError(f"the file of descriptors {path} cannot be read: {error}") from error

    @staticmethod
    def of_class(message_class: Any) -> ProtobufType:
        """The type of a class that `protoc` made.

        Raises:
            ConfigurationError: if it is none.
        """
        return ProtobufType(f"{message_class.__module__}:{message_class.__qualname__}")

    @property
    def descriptor(self) -> Any:
        """What the library knows of the fields."""
        return self.message_class.DESCRIPTOR

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _imported(name: str) -> Any:
    module_name, _, path = name.partition(":") if ":" in name else name.rpartition(".")
    try:
        found = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"there is no message class {name!r}: it is named by its module and name, as in shop.orders_pb2:Order "
            f"({error})"
        ) from error
    if not hasattr(found, "DESCRIPTOR") or not hasattr(found, "FromString"):
        raise ConfigurationError(f"{name!r} is no class of messages that protoc made")
    return found


def _described(name: str, descriptors: bytes) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

    try:
        files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file}
    except message.DecodeError as error:
        raise ConfigurationError(f"this is no file of descriptors: {error}") from error
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file_name: str) -> None:
        if file_name in added:
            return
        added.add(file_name)
        if file_name not in files:
            raise ConfigurationError(
                f"the file of descriptors lacks {file_name}: make it with protoc --include_imports"
            )
        for needed in files[file_name].dependency:
            add(needed)
        pool.Add(files[file_name])

    for file_name in files:
        add(file_name)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise ConfigurationError(f"there is no message {name!r} in the file of descriptors") from None


def is_repeated(field: Any) -> bool:
    """Whether a field has many values. Older versions of the library say so in another way."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)
