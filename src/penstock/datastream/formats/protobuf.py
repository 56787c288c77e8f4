"""Protocol Buffers: rows as messages."""

from penstock.formats.protobuf import ProtobufRowDeserializationSchema, ProtobufRowSerializationSchema, ProtobufType

__all__ = ["ProtobufRowDeserializationSchema", "ProtobufRowSerializationSchema", "ProtobufType"]
