"""Failures as Flink's client reads them: Java's serialization, byte for byte."""

from __future__ import annotations

import struct

import msgspec

from penstock.base.errors import CheckpointError
from penstock.server.rest.messages.jobs import CHARS_MAX, failure_cause, serialized_throwable


def test_the_class_of_flink_its_version_and_the_text_are_in_it() -> None:
    made = serialized_throwable("penstock.X", "it broke")
    name = b"org.apache.flink.util.SerializedThrowable"
    head = b"\xac\xed\x00\x05sr" + struct.pack(">H", len(name)) + name + struct.pack(">q", 7284183123441947635)
    assert made.startswith(head)
    assert made.endswith(b"t\x00\x08it broke" + b"x" + b"t\x00\x08it broke" + b"t\x00\x0apenstock.X")


def test_text_is_in_the_utf_8_of_java() -> None:
    made = serialized_throwable("X", "\0é\U0001f600")
    assert b"t\x00\x0a\xc0\x80\xc3\xa9\xed\xa0\xbd\xed\xb8\x80" in made


def test_the_longest_text_fits_into_a_string() -> None:
    made = serialized_throwable("X", "\U0001f600" * 2 * CHARS_MAX)
    assert made.count(b"\xed\xa0\xbd\xed\xb8\x80") == 2 * CHARS_MAX


def test_it_travels_in_base_64() -> None:
    cause = msgspec.json.decode(msgspec.json.encode(failure_cause(CheckpointError("no directory"))))
    assert cause["class"] == "penstock.base.errors.CheckpointError"
    assert cause["serialized-throwable"].startswith("rO0ABXNy")
