"""`OpensearchSink`: elements as documents, and a service that refuses, rejects, hangs or is away."""

from __future__ import annotations

import base64
import json
import logging
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from tests.connectors.opensearch.service import Action, FakeService

from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.base.secrets import hide
from penstock.common import Configuration, Row
from penstock.connectors.opensearch import BulkClient, Service, encode_document, read_result
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee, RequestError
from penstock.datastream.connectors.elasticsearch import (
    BulkAction,
    Elasticsearch7SinkBuilder,
    ElasticsearchEmitter,
    ElasticsearchSink,
    FailureHandler,
    FlushBackoffType,
    OpensearchSinkBuilder,
)
from penstock.testing.connectors import SINK_CASES, SinkUnderTest, check_sink

ROWS = [{"id": number, "price": Decimal(f"{number}.10")} for number in range(20)]


def build_sink(service: FakeService, emitter: ElasticsearchEmitter | None = None, **handler: Any) -> ElasticsearchSink:
    builder = Elasticsearch7SinkBuilder().set_hosts(service.url.removeprefix("http://"))
    builder.set_emitter(emitter or ElasticsearchEmitter.static_index("orders", "id"))
    builder.set_bulk_flush_max_actions(4).set_bulk_flush_interval(20)
    builder.set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, handler.pop("retries", 50), 1)
    for name, value in handler.items():
        getattr(builder, f"set_{name}")(value)
    return builder.build()


def write(sink: ElasticsearchSink, rows: list[Any]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"execution.target": "local"}))
    env.from_collection(rows).sink_to(sink)
    env.execute()


def test_elements_are_documents(service: FakeService) -> None:
    write(build_sink(service), [*ROWS, {"id": 3, "price": Decimal("99999999999999999999.99")}])
    assert service.documents["orders"]["3"] == '{"id":3,"price":99999999999999999999.99}'
    assert {id: json.loads(text)["id"] for id, text in service.documents["orders"].items()} == {
        str(row["id"]): row["id"] for row in ROWS
    }
    assert max(count for _, count in service.requests) <= 4


def test_documents_without_ids_are_new(service: FakeService) -> None:
    emitter = ElasticsearchEmitter.dynamic_index("where")
    write(build_sink(service, emitter), [Row(where="a", n=1), Row(where="b", n=2), Row(where="a", n=1)])
    assert {index: len(documents) for index, documents in service.documents.items()} == {"a": 2, "b": 1}


def test_deletes_and_versions_of_an_emitter(service: FakeService) -> None:
    class Changes(ElasticsearchEmitter):
        def emit(self, element: Any, timestamp: int | None) -> BulkAction:
            id, version, document = element
            if document is None:
                return BulkAction.delete("t", id, version)
            return BulkAction.write("t", id, document, version)

    changes = [("a", 5, {"n": 5}), ("a", 3, {"n": 3}), ("b", 1, {"n": 1}), ("b", 2, None), ("b", 1, {"n": 1}),
               ("c", 1, {"n": 1}), ("c", 0, None), ("d", 4, None)]  # fmt: skip
    write(build_sink(service, Changes("t")), changes)
    assert service.documents["t"] == {"a": '{"n":5}', "c": '{"n":1}'}


def test_refused_actions_are_sent_again(service: FakeService) -> None:
    """429 and 5xx of an action or a request, and 409 of an update; the others of the request are not sent again."""
    seen: Counter[Any] = Counter()
    statuses = iter([429, 503, 500, 409])

    def refuse(action: Action) -> tuple[int, str] | None:
        seen[action[1]["_id"]] += 1
        return (next(statuses), "later") if action[1]["_id"] == "7" and seen["7"] <= 4 else None

    wholes = iter([(429, b"{}"), (503, b"away")])
    service.refuse, service.answer = refuse, lambda actions: next(wholes, None)
    write(build_sink(service), ROWS)
    assert len(service.documents["orders"]) == 20
    assert seen["7"] == 5
    assert sum(seen.values()) == 24


def test_a_rejected_document_fails_the_job_with_the_reason(service: FakeService) -> None:
    service.refuse = lambda action: (400, "failed to parse field [price]") if action[1]["_id"] == "7" else None
    with pytest.raises(JobExecutionError, match=r"document '7' of index 'orders'.*failed to parse field \[price\]"):
        write(build_sink(service), ROWS)


def test_rejected_documents_can_be_left_out(service: FakeService, caplog: pytest.LogCaptureFixture) -> None:
    service.refuse = lambda action: (400, "no such field") if action[1]["_id"] == "7" else None
    with caplog.at_level(logging.WARNING):
        write(build_sink(service, failure_handler=FailureHandler.IGNORE), ROWS)
    assert len(service.documents["orders"]) == 19
    assert "document '7' of index 'orders': status 400: some_exception: no such field; it is left out" in caplog.text


def test_attempts_end(service: FakeService) -> None:
    service.refuse = lambda action: (429, "the queue is full") if action[1]["_id"] == "7" else None
    with pytest.raises(
        JobExecutionError, match=r"document '7' .* sent 3 times .*429: some_exception: the queue is full"
    ):
        write(build_sink(service, retries=2), ROWS)


def test_refused_ones_without_a_limit(service: FakeService) -> None:
    left = iter(range(30))
    service.refuse = lambda action: (429, "full") if action[1]["_id"] == "7" and next(left, None) is not None else None
    write(build_sink(service, retries=2, failure_handler=FailureHandler.RETRY_REJECTED), ROWS)
    assert len(service.documents["orders"]) == 20


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b"who are you"), "refuses a bulk request: status 401: who are you"),
        ((413, b"large"), r"status 413: large \(the request has . actions: lower the size"),
        ((200, b'{"errors":true,"items":[]}'), "has 0 results for . actions"),
        ((200, b"<html>"), "has another form"),
    ],
)
def test_a_service_of_another_kind_fails_the_job(service: FakeService, answer: tuple[int, bytes], said: str) -> None:
    service.answer = lambda actions: answer
    with pytest.raises(JobExecutionError, match=said):
        write(build_sink(service), ROWS)


def test_one_document_that_is_too_large_is_rejected(service: FakeService) -> None:
    service.answer = lambda actions: (413, b"large") if len(actions) == 1 else None
    with pytest.raises(JobExecutionError, match="rejects document '0' of index 'orders': status 413: large"):
        write(build_sink(service), ROWS[:1])


def test_a_host_that_is_away_is_passed_over(service: FakeService) -> None:
    hosts = ["http://127.0.0.1:9", service.url]
    write(build_sink(service, hosts=hosts), ROWS)
    assert len(service.documents["orders"]) == 20
    with pytest.raises(JobExecutionError, match="Error"):
        write(build_sink(service, hosts=hosts[:1], retries=1), ROWS)


def test_a_login_is_sent_and_hidden(service: FakeService) -> None:
    login: dict[str, Any] = {
        "connection_username": "ann",
        "connection_password": "hush-hush",
        "connection_path_prefix": "search",
    }
    write(build_sink(service, **login), ROWS)
    token = base64.b64encode(b"ann:hush-hush").decode()
    assert service.requests[0][0]["Authorization"] == f"Basic {token}"
    assert "hush" not in hide(f"hush-hush {token}")
    assert token not in hide(f"hush-hush {token}")
    assert "hush" not in repr(Service(("http://one",), "ann", "hush-hush"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hosts": []}, "at least one host"),
        ({"hosts": "ftp://one"}, "a host is a URL"),
        ({"hosts": "http://me:hush@one"}, "without user and password"),
        ({"connection_username": "ann"}, "given together"),
        ({"delivery_guarantee": DeliveryGuarantee.EXACTLY_ONCE}, "at least once"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], said: str) -> None:
    builder = OpensearchSinkBuilder().set_hosts("one").set_emitter(ElasticsearchEmitter.static_index("i"))
    with pytest.raises(ConfigurationError, match=said) as caught:  # noqa: PT012 - some setters check, others the end
        for name, value in settings.items():
            getattr(builder, f"set_{name}")(value)
        builder.build()
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="set an emitter"):
        OpensearchSinkBuilder().set_hosts("one").build()


def test_limits_can_be_none() -> None:
    builder = OpensearchSinkBuilder().set_hosts("one").set_emitter(ElasticsearchEmitter.static_index("i"))
    builder.set_bulk_flush_max_actions(-1).set_bulk_flush_max_size_mb(-1).set_bulk_flush_interval(-1)
    builder.set_bulk_flush_backoff_strategy(FlushBackoffType.NONE, 8, 50)
    settings = builder.build().settings
    assert settings.max_attempts == 1
    assert settings.max_time_in_buffer_ms > 1 << 40


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), Decimal("NaN")])
def test_numbers_without_a_form_in_json(number: float) -> None:
    with pytest.raises(ValueError, match="has no form in JSON"):
        encode_document(Row(a=None, rows=[{"b": number}]))
    with pytest.raises(TypeError, match="object"):
        encode_document({"a": object()})


def test_reasons_name_their_causes() -> None:
    error = {"type": "mapper", "reason": "failed", "caused_by": {"type": "number", "reason": "'x' is none"}}
    body = json.dumps({"errors": True, "items": [{"index": {"status": 400, "error": error}}]}).encode()
    result = read_result([BulkAction.write("i", "1", {})], body)
    assert result is not None
    assert result.rejected[0] == "status 400: mapper: failed, caused by number: 'x' is none"


def test_what_supersedes_what(service: FakeService) -> None:
    sink = build_sink(service)
    plain, part = BulkAction.write("i", "1", {}), BulkAction.merge("i", "1", {})
    old, new = (BulkAction.write("i", "1", {}, version) for version in (3, 4))
    gone = BulkAction.delete("i", "1", 4)
    pairs = [
        (plain, plain),
        (plain, part),
        (part, plain),
        (new, old),
        (old, new),
        (gone, new),
        (plain, old),
        (old, plain),
    ]
    assert [sink.supersedes(*pair) for pair in pairs] == [True, True, False, True, False, True, False, False]


def test_a_key_that_changes_often_costs_little(service: FakeService) -> None:
    write(build_sink(service), [{"id": number % 2, "n": number} for number in range(2_000)])
    assert service.documents["orders"] == {"0": '{"id":0,"n":1998}', "1": '{"id":1,"n":1999}'}
    assert len(service.requests) < 500


def test_certificates_stay_wrong() -> None:
    import ssl

    client = BulkClient(Service(("https://one",)))
    assert not client.is_retryable(ssl.SSLCertVerificationError())
    assert client.is_retryable(ConnectionResetError())
    assert not client.is_retryable(RequestError("no"))


@pytest.mark.parametrize("case", SINK_CASES)
def test_conformance(service: FakeService, case: str) -> None:
    def prepare() -> SinkUnderTest:
        service.documents.clear()
        rows = [{"id": number} for number in range(24)]
        read = lambda: [json.loads(text) for text in service.documents.get("orders", {}).values()]  # noqa: E731
        return SinkUnderTest(build_sink(service), records=rows, read=read, key=lambda row: row["id"])

    check_sink(prepare, case, parallelisms=[1, 2], places=4)
