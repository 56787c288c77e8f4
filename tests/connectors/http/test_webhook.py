"""`WebhookSource` and the connector `http-webhook`: who may send messages, and when senders are answered."""

from __future__ import annotations

import http.client
import json
import pickle
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tests.connectors.postgres.test_tables import environment as create_tables
from tests.servers.ports import free_port

from penstock.base.errors import ConfigurationError, FormatError, OperationError
from penstock.base.secrets import hide
from penstock.codecs.serialization import DeserializationSchema, Deserialized, decode_each
from penstock.common import Configuration, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.webhook import split_messages
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.http import WebhookSettings, WebhookSource
from penstock.runtime.connector import InputStatus
from penstock.sql.data.errors import ValidationError
from penstock.testing.connectors import ReaderHost

TOKEN = "a-token-of-the-test"


def post(
    port: int,
    body: bytes = b"tea",
    path: str = "/",
    method: str = "POST",
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> tuple[int, str]:
    """The status and the reason of an answer."""
    kind = http.client.HTTPConnection if tls is None else http.client.HTTPSConnection
    more: dict[str, Any] = {} if tls is None else {"context": tls}
    connection = kind("127.0.0.1", port, timeout=30, **more)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text)["message"] if text else ""
    finally:
        connection.close()


class Sending(threading.Thread):
    """A request of its own thread."""

    def __init__(self, port: int, body: bytes) -> None:
        super().__init__(daemon=True)
        self.answer: tuple[int, str] | None = None
        self._arguments = port, body
        self.start()

    def run(self) -> None:
        self.answer = post(*self._arguments)

    def wait(self) -> int:
        self.join(30)
        assert self.answer is not None
        return self.answer[0]


class Words(DeserializationSchema[str]):
    """Refuses some words."""

    def deserialize(self, message: bytes) -> str:
        if message == b"bad":
            raise FormatError("no such word")
        return message.decode()

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        return decode_each(self.deserialize, messages)


@contextmanager
def reading(
    schema: DeserializationSchema[Any] | None = None, host: ReaderHost | None = None, **settings: Any
) -> Iterator[tuple[Any, int]]:
    """A reader whose server runs, and its port."""
    port = free_port()
    source = WebhookSource(WebhookSettings(str(port), **settings), schema or Words())
    reader = pickle.loads(pickle.dumps(source)).create_reader(host or ReaderHost())
    reader.start()
    try:
        yield reader, port
    finally:
        reader.close()


def poll(reader: Any, count: int = 1, most: int = 100) -> list[Any]:
    """So many records, at least."""
    found: list[Any] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline
        batch = reader.poll_next(most)
        if batch is InputStatus.NOTHING_AVAILABLE:
            time.sleep(0.005)
        else:
            found += batch.values
    return found


def test_a_sender_is_answered_when_a_checkpoint_has_its_message() -> None:
    with reading() as (reader, port):
        first = Sending(port, b"tea")
        assert poll(reader) == ["tea"]
        reader.snapshot_state(1)
        second = Sending(port, b"rum")
        assert poll(reader) == ["rum"]
        reader.notify_checkpoint_complete(1)
        assert first.wait() == 200
        assert second.is_alive()
        reader.snapshot_state(2)
        reader.snapshot_state(3)
        reader.notify_checkpoint_complete(3)
        assert second.wait() == 200


def test_a_message_that_no_checkpoint_has_is_answered_503_when_the_reader_ends() -> None:
    host = ReaderHost()
    with reading(host=host) as (reader, port):
        emitted = Sending(port, b"tea")
        poll(reader)
        reader.snapshot_state(1)
        waiting = Sending(port, b"rum")
        deadline = time.monotonic() + 30
        while not host.gauges["pendingRecords"]():
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert (emitted.wait(), waiting.wait()) == (503, 503)


def test_an_aborted_checkpoint_answers_nobody_and_the_next_one_does() -> None:
    with reading() as (reader, port):
        sender = Sending(port, b"tea")
        poll(reader)
        reader.snapshot_state(1)
        reader.notify_checkpoint_aborted(1)
        assert sender.is_alive()
        reader.snapshot_state(2)
        reader.notify_checkpoint_complete(2)
        assert sender.wait() == 200


def test_a_sender_is_answered_at_once_if_the_job_may_lose_its_message() -> None:
    with reading(acknowledge="receipt") as (reader, port):
        assert post(port) == (202, "")
        assert poll(reader) == ["tea"]
    assert not WebhookSource(WebhookSettings("1", acknowledge="receipt"), SimpleStringSchema()).replayable


def test_a_sender_waits_no_longer_than_the_setting_and_its_message_is_withdrawn() -> None:
    with reading(response_timeout_ms=20) as (reader, port):
        status, reason = post(port)
        assert (status, reason) == (503, "no checkpoint has completed in time: send the messages again")
        assert reader.poll_next(10) is InputStatus.NOTHING_AVAILABLE


def test_when_too_many_messages_wait_senders_have_to_come_back() -> None:
    with reading(acknowledge="receipt", max_buffered=2) as (reader, port):
        assert [post(port)[0] for _ in range(3)] == [202, 202, 503]
        assert len(poll(reader, 2)) == 2
        assert post(port)[0] == 202


@pytest.mark.parametrize(("mode", "body"), [("lines", b"tea\n\nrum\r\nale"), ("batch", b' [ "tea" , {"a":1}, 3 ] ')])
def test_a_request_may_have_several_messages(mode: str, body: bytes) -> None:
    with reading(mode=mode, acknowledge="receipt") as (reader, port):
        assert post(port, body)[0] == 202
        found = poll(reader, 3, most=2)
        assert found == (["tea", "rum", "ale"] if mode == "lines" else ['"tea"', '{"a":1}', "3"])


def test_a_request_is_acknowledged_when_all_its_messages_are_in_a_checkpoint() -> None:
    with reading(mode="lines") as (reader, port):
        sender = Sending(port, b"1\n2\n3")
        assert poll(reader, 2, most=2) == ["1", "2"]
        reader.snapshot_state(1)
        reader.notify_checkpoint_complete(1)
        assert poll(reader) == ["3"]
        assert sender.is_alive()
        reader.snapshot_state(2)
        reader.notify_checkpoint_complete(2)
        assert sender.wait() == 200


def test_malformed_messages_are_answered_400_and_none_of_the_request_is_accepted() -> None:
    with reading(mode="lines", acknowledge="receipt") as (reader, port):
        assert post(port, b"tea\nbad") == (400, "message 1 is malformed: no such word")
        assert reader.poll_next(10) is InputStatus.NOTHING_AVAILABLE
    with reading(Words().skip_malformed(), mode="lines", acknowledge="receipt") as (reader, port):
        assert post(port, b"tea\nbad\nrum")[0] == 202
        assert poll(reader, 2) == ["tea", "rum"]
    with pytest.raises(FormatError, match="not a JSON array"):
        split_messages(b'{"a": 1}', "batch")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"path": "/other"}, 404),
        ({"method": "GET"}, 405),
        ({"body": b"x" * 101}, 413),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:8090"}, 202),
        ({"Host": "[::1]:8090"}, 202),
    ],
)
def test_requests_that_must_not_send_messages_are_refused(request_: dict[str, Any], status: int) -> None:
    with reading(acknowledge="receipt", max_body_bytes=100) as (_, port):
        assert post(port, **request_)[0] == status


def test_a_body_without_a_length_is_bounded_too() -> None:
    with reading(acknowledge="receipt", max_body_bytes=100) as (_, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/", iter([b"x" * 60, b"x" * 60]), encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()


def test_a_token_is_needed_if_one_is_set_and_hidden() -> None:
    with reading(acknowledge="receipt", token=TOKEN) as (_, port):
        for given in ("", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer ü"):
            assert post(port, Authorization=given)[0] == 401
        assert post(port, Authorization=f"Bearer {TOKEN}")[0] == 202
        # Who has the token may be a page, or come by another name.
        assert post(port, Authorization=f"Bearer {TOKEN}", Host="shop.example", Origin="http://a.b")[0] == 202
    assert TOKEN not in repr(WebhookSettings("1", token=TOKEN))
    assert TOKEN not in hide(f"it was {TOKEN}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bind_address": "0.0.0.0"}, "needs a token"),
        ({"bind_address": "0.0.0.0", "token": TOKEN}, "needs a certificate"),
        ({"token": " "}, "is empty"),
        ({"certificate": "x.pem"}, "both the certificate and its key"),
        ({"ports": "0"}, "such as 8090"),
        ({"ports": "80-x"}, "such as 8090"),
        ({"ports": "90000"}, "such as 8090"),
        ({"path": "orders"}, "begins with /"),
        ({"mode": "many"}, "'single', 'lines' or 'batch'"),
        ({"acknowledge": "never"}, "'checkpoint' or 'receipt'"),
        ({"max_body_bytes": 0}, "must be positive"),
    ],
)
def test_settings_that_are_not_safe_or_wrong_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        WebhookSettings(**{"ports": "8090", **settings})


def test_each_subtask_takes_the_first_free_port() -> None:
    with reading() as (_, port):
        first = free_port()
        source = WebhookSource(WebhookSettings(f"{port},{first}"), SimpleStringSchema())
        assert source.max_parallelism() == 2
        reader: Any = source.create_reader(ReaderHost())
        reader.start()
        try:
            sender = Sending(first, b"tea")
            assert poll(reader) == ["tea"]
            other: Any = WebhookSource(WebhookSettings(str(port)), SimpleStringSchema()).create_reader(ReaderHost())
            with pytest.raises(OperationError, match=f"none of the ports {port}"):
                other.start()
        finally:
            reader.close()
        assert sender.wait() == 503


def test_a_job_without_checkpoints_is_refused_unless_it_may_lose_messages() -> None:
    source = WebhookSource(WebhookSettings("8090"), SimpleStringSchema())
    with pytest.raises(ConfigurationError, match=r"this job has none: set execution\.checkpointing\.interval"):
        source.configure(Configuration())
    source.configure(Configuration.from_dict({"execution.checkpointing.interval": "1 s"}))
    WebhookSource(WebhookSettings("8090", acknowledge="receipt"), SimpleStringSchema()).configure(Configuration())


def test_it_does_not_run_in_micro_batches() -> None:
    source = WebhookSource(WebhookSettings("8090"), SimpleStringSchema())
    with pytest.raises(ConfigurationError, match="does not run in MICRO_BATCH"):
        source.check_execution_mode("MICRO_BATCH", False)


# --- jobs -----------------------------------------------------------------------------------------------------------


def test_a_job_reads_messages_and_its_checkpoints_answer_senders(tmp_path: Any) -> None:
    port = free_port()
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "execution.target": "local",
                "execution.checkpointing.interval": "20 ms",
                "execution.checkpointing.dir": str(tmp_path),
            }
        )
    ).set_parallelism(1)
    source = WebhookSource(WebhookSettings(str(port), path="/w"), SimpleStringSchema())
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "words")
    found: Any = stream.execute_and_collect()
    with found as words:
        wait_until(lambda: is_up(port))
        senders = [threading.Thread(target=post, args=(port, b"%d" % n, "/w")) for n in range(5)]
        for sender in senders:
            sender.start()
        numbers = sorted(next(words) for _ in senders)
        for sender in senders:
            sender.join(30)
    assert numbers == ["0", "1", "2", "3", "4"]


def is_up(port: int) -> bool:
    try:
        return post(port, path="/no")[0] == 404
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_rows_of_a_table_are_messages_of_a_format() -> None:
    port = free_port()
    tables = create_tables(parallelism_default="1")
    tables.execute_sql(
        f"CREATE TABLE w (id INT, name STRING) WITH ('connector' = 'http-webhook', 'port' = '{port}', "
        "'format' = 'json', 'request.mode' = 'batch', 'acknowledge' = 'receipt', 'path' = '/w')"
    )
    with tables.execute_sql("SELECT id * 2, name FROM w").collect() as rows:
        wait_until(lambda: is_up(port))
        assert post(port, b'[{"id": 1, "name": "tea"}, {"id": 2}]', "/w")[0] == 202
        assert post(port, b'[{"id": "x"}]', "/w")[0] == 400
        assert [tuple(next(rows)) for _ in range(2)] == [(2, "tea"), (4, None)]


def test_options_of_a_table_that_are_wrong_are_named() -> None:
    tables = create_tables()
    tables.execute_sql(
        "CREATE TABLE w (id INT) WITH ('connector' = 'http-webhook', 'port' = '8090', 'format' = 'json', "
        "'bind-address' = '0.0.0.0')"
    )
    with pytest.raises(ValidationError, match="needs a token"):
        tables.execute_sql("SELECT * FROM w")
