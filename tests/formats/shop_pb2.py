"""Messages of a shop, made as the output of `protoc` makes them.

syntax = "proto3"; package shop;
enum State { NEW = 0; PAID = 1; SENT = 5; }
message Customer { string name = 1; optional int32 age = 2; }
message Line { string article = 1; uint32 count = 2; }
message Order {
  int64 id = 1; bool open = 2; float weight = 3; double price = 4; bytes raw = 5; State state = 6;
  Customer customer = 7; repeated Line lines = 8; repeated string tags = 9;
  map<string, int32> counts = 10; map<int32, Customer> people = 11;
  oneof payment { string card = 12; int64 cents = 13; }
  optional string note = 14; repeated State history = 15; uint64 large = 16;
}
message Node { int32 id = 1; Node next = 2; }
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import builder

_TYPES = descriptor_pb2.FieldDescriptorProto


def _message(name: str, *fields: Any, oneofs: tuple[str, ...] = (), nested: tuple[Any, ...] = ()) -> Any:
    """Fields: (name, number, type, and then what else is set)."""
    made = descriptor_pb2.DescriptorProto(name=name, nested_type=nested)
    made.oneof_decl.extend(descriptor_pb2.OneofDescriptorProto(name=one) for one in oneofs)
    for field, number, kind, more in fields:
        settings = {"label": _TYPES.LABEL_OPTIONAL, **more}
        if isinstance(kind, str):
            settings["type_name"] = kind
            kind = _TYPES.TYPE_ENUM if kind == ".shop.State" else _TYPES.TYPE_MESSAGE
        made.field.add(name=field, number=number, type=kind, **settings)
    return made


def _entry(name: str, key: int, value: Any) -> Any:
    made = _message(name, ("key", 1, key, {}), ("value", 2, value, {}))
    made.options.map_entry = True
    return made


_MANY = {"label": _TYPES.LABEL_REPEATED}
FILE = descriptor_pb2.FileDescriptorProto(
    name="shop.proto",
    package="shop",
    syntax="proto3",
    enum_type=[
        descriptor_pb2.EnumDescriptorProto(
            name="State",
            value=[
                descriptor_pb2.EnumValueDescriptorProto(name=name, number=number)
                for name, number in (("NEW", 0), ("PAID", 1), ("SENT", 5))
            ],
        )
    ],
    message_type=[
        _message(
            "Customer",
            ("name", 1, _TYPES.TYPE_STRING, {}),
            ("age", 2, _TYPES.TYPE_INT32, {"proto3_optional": True, "oneof_index": 0}),
            oneofs=("_age",),
        ),
        _message("Line", ("article", 1, _TYPES.TYPE_STRING, {}), ("count", 2, _TYPES.TYPE_UINT32, {})),
        _message(
            "Order",
            ("id", 1, _TYPES.TYPE_INT64, {}),
            ("open", 2, _TYPES.TYPE_BOOL, {}),
            ("weight", 3, _TYPES.TYPE_FLOAT, {}),
            ("price", 4, _TYPES.TYPE_DOUBLE, {}),
            ("raw", 5, _TYPES.TYPE_BYTES, {}),
            ("state", 6, ".shop.State", {}),
            ("customer", 7, ".shop.Customer", {}),
            ("lines", 8, ".shop.Line", _MANY),
            ("tags", 9, _TYPES.TYPE_STRING, _MANY),
            ("counts", 10, ".shop.Order.CountsEntry", _MANY),
            ("people", 11, ".shop.Order.PeopleEntry", _MANY),
            ("card", 12, _TYPES.TYPE_STRING, {"oneof_index": 0}),
            ("cents", 13, _TYPES.TYPE_INT64, {"oneof_index": 0}),
            ("note", 14, _TYPES.TYPE_STRING, {"proto3_optional": True, "oneof_index": 1}),
            ("history", 15, ".shop.State", _MANY),
            ("large", 16, _TYPES.TYPE_UINT64, {}),
            oneofs=("payment", "_note"),
            nested=(
                _entry("CountsEntry", _TYPES.TYPE_STRING, _TYPES.TYPE_INT32),
                _entry("PeopleEntry", _TYPES.TYPE_INT32, ".shop.Customer"),
            ),
        ),
        _message("Node", ("id", 1, _TYPES.TYPE_INT32, {}), ("next", 2, ".shop.Node", {})),
    ],
)

_FOUND = descriptor_pool.Default().AddSerializedFile(FILE.SerializeToString())
builder.BuildMessageAndEnumDescriptors(_FOUND, globals())
builder.BuildTopDescriptorsAndMessages(_FOUND, __name__, globals())
