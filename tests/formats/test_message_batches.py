"""Messages decoded and written many at once, and what happens to those that are not in the format."""

import codecs
import json
import pickle
from typing import Any

import pytest

from penstock.base.errors import FormatError
from penstock.base.output_tag import OutputTag
from penstock.base.types import Row
from penstock.common import Types
from penstock.common.serialization import ByteArraySchema, DeserializationSchema, SimpleStringSchema
from penstock.connectors.base import MALFORMED_COUNTER, decode_messages
from penstock.datastream.formats.avro import AvroRowDeserializationSchema
from penstock.datastream.formats.csv import CsvRowDeserializationSchema
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.formats.file_format import MalformedMessageError

TYPE = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
AVRO = json.dumps(
    {
        "type": "record",
        "name": "user",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)
#: for each format a schema, three messages of which the second is not in the format, and the rows of the others
FORMATS = {
    "json": (
        JsonRowDeserializationSchema.builder().type_info(TYPE).build(),
        [b'{"id": 1, "name": "ann"}', b'{"id": "x"}', b'{"id": 3, "name": null}'],
        [Row(1, "ann"), Row(3, None)],
    ),
    "csv": (
        CsvRowDeserializationSchema.Builder(TYPE).build(),
        [b"1,ann\n", b"x,bob\n", b"3,"],
        [Row(1, "ann"), Row(3, "")],
    ),
    "avro": (
        AvroRowDeserializationSchema(avro_schema_string=AVRO),
        [b"\x02\x06ann", b"\x02\x06a", b"\x06\x00"],
        [Row(1, "ann"), Row(3, "")],
    ),
}


NUMBERS = [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BIG_INT(), Types.FLOAT(), Types.DOUBLE()]


class Length(DeserializationSchema[int]):
    """A schema of a program, which knows nothing of batches."""

    def deserialize(self, message: bytes) -> int | None:
        if message == b"bad":
            raise ValueError("no length")
        return len(message) or None


class Context:
    """What a reader tells its task."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.sides: list[tuple[str, list[Any]]] = []

    def count(self, name: str, increment: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + increment

    def collect_side(self, tag_id: str, batch: Any) -> None:
        self.sides.append((tag_id, batch.values))


def decoded(schema: DeserializationSchema[Any], messages: list[bytes]) -> tuple[Any, Context]:
    context = Context()
    found = decode_messages(schema, messages, lambda place: ("orders-3", 100 + place), context)  # type: ignore[arg-type]
    return found, context


def test_schema_of_program_is_called_for_each_message() -> None:
    found = Length().deserialize_batch([b"a", b"", b"bad", b"abc"])
    assert found.values == [1, 3]
    assert found.of_records([10, 20, 30, 40]) == [10, 40]
    assert [(bad.place, bad.reason) for bad in found.bad] == [(2, "no length")]


def test_messages_that_are_all_records_keep_their_lists() -> None:
    times = [7, 8]
    found = SimpleStringSchema().deserialize_batch([b"a", b"\xff"])
    assert found.values == ["a", "�"]
    assert found.of_records(times) is times
    assert ByteArraySchema().deserialize_batch([b"a", b""]).values == [b"a", b""]


@pytest.mark.parametrize("name", FORMATS)
def test_bad_message_fails_with_its_place(name: str) -> None:
    schema, messages, _ = FORMATS[name]
    with pytest.raises(MalformedMessageError, match=r"^orders-3, offset 101: ") as failure:
        decoded(schema, messages)
    assert pickle.loads(pickle.dumps(failure.value)).position == 101


@pytest.mark.parametrize("name", FORMATS)
def test_bad_message_is_skipped_and_counted(name: str) -> None:
    schema, messages, rows = FORMATS[name]
    found, context = decoded(schema.skip_malformed(), messages)
    assert list(map(list, found.values)) == list(map(list, rows))
    assert found.of_records("abc") == ["a", "c"]
    assert context.counts == {MALFORMED_COUNTER: 1}
    assert not context.sides


@pytest.mark.parametrize("name", FORMATS)
def test_bad_message_goes_to_side_output(name: str) -> None:
    schema, messages, rows = FORMATS[name]
    travelled = pickle.loads(pickle.dumps(schema.skip_malformed(OutputTag("bad"))))
    found, context = decoded(travelled, messages)
    assert list(map(list, found.values)) == list(map(list, rows))
    [(tag, [(split, position, reason, message)])] = context.sides
    assert (tag, split, position, message) == ("bad", "orders-3", 101, messages[1])
    assert reason


@pytest.mark.parametrize("name", FORMATS)
def test_rule_is_of_the_changed_schema_alone(name: str) -> None:
    schema, messages, _ = FORMATS[name]
    assert schema.skip_malformed().deserialize(messages[1]) is None
    with pytest.raises(ValueError, match="cannot read"):
        schema.deserialize(messages[1])


def test_texts_are_written_many_at_once() -> None:
    assert SimpleStringSchema().serialize_batch(["a", "é"]) == [b"a", "é".encode()]
    with pytest.raises(ValueError, match="SimpleStringSchema writes str, not int: 2"):
        SimpleStringSchema().serialize_batch(["a", 2])


@pytest.mark.parametrize("number", [*NUMBERS, Types.BIG_DEC()], ids=str)
@pytest.mark.parametrize("kind", [lambda number: number, Types.LIST], ids=["number", "list"])
def test_underscore_separates_no_digits(number: Any, kind: Any) -> None:
    """In Java's numbers; Python reads 1_0 as 10."""
    row_type = Types.ROW_NAMED(["f"], [kind(number)])
    in_json = b'{"f": "1_0"}' if kind(number) is number else b'{"f": ["1_0"]}'
    for schema, message in [
        (JsonRowDeserializationSchema.builder().type_info(row_type).build(), in_json),
        (JsonRowDeserializationSchema.builder().type_info(row_type).build(), codecs.BOM_UTF8 + in_json),
        (CsvRowDeserializationSchema.Builder(row_type).build(), b"1_0"),
    ]:
        with pytest.raises(FormatError, match="'1_0' is not a number"):
            schema.deserialize(message)


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-inf"])
def test_decimal_is_finite(text: bytes) -> None:
    """As Java's BigDecimal is."""
    row_type = Types.ROW_NAMED(["f"], [Types.BIG_DEC()])
    with pytest.raises(FormatError, match="is not a decimal number"):
        JsonRowDeserializationSchema.builder().type_info(row_type).build().deserialize(b'{"f": "%s"}' % text)
    with pytest.raises(FormatError, match="is not a decimal number"):
        CsvRowDeserializationSchema.Builder(row_type).build().deserialize(text)
