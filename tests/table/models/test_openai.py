"""The provider `openai` beside an endpoint on this machine: requests, failures, the limit of the rate, and secrets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation.fresh_seeds import fresh_seeds
from tests.table.models.endpoint import Endpoint, serving

from penstock.base.errors import JobExecutionError, UnsupportedError
from penstock.base.metrics import MetricGroup, MetricRegistry
from penstock.sql.data.errors import ValidationError
from penstock.sql.models.provider import AsyncPredictor
from penstock.table import EnvironmentSettings, FunctionContext, TableEnvironment

KEY = "sk-not-to-be-seen"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint()) as endpoint:
        yield endpoint


def environment(server: Endpoint, rows: int = 3, **options: str) -> TableEnvironment:
    """An environment with the models `chat` and `vectors`, and a table of texts."""
    settings = EnvironmentSettings.in_streaming_mode()
    settings.get_configuration().set_string("execution.target", "local")
    t_env = TableEnvironment.create(settings)
    t_env.create_temporary_view("texts", t_env.from_elements([(i, f"text {i}") for i in range(rows)], ["id", "txt"]))
    given = f"'provider' = 'openai', 'api-key' = '{KEY}', 'model' = 'm', 'retry-delay' = '1 ms'"
    chat, vectors = (f"{given}, 'endpoint' = '{server.url}{path}'" for path in ("chat/completions", "embeddings"))
    t_env.execute_sql(f"CREATE MODEL chat INPUT (txt STRING) OUTPUT (answer STRING) WITH ({chat})")
    t_env.execute_sql(f"CREATE MODEL vectors INPUT (txt STRING) OUTPUT (v ARRAY<FLOAT>) WITH ({vectors})")
    if options:
        change(t_env, **options)
    return t_env


def change(t_env: TableEnvironment, name: str = "chat", **options: str) -> None:
    text = ", ".join(f"'{key.replace('_', '-')}' = '{value}'" for key, value in options.items())
    t_env.execute_sql(f"ALTER MODEL {name} SET ({text})")


def predicted(t_env: TableEnvironment, name: str = "chat", table: str = "TABLE texts") -> list[tuple[Any, ...]]:
    query = f"SELECT * FROM ML_PREDICT({table}, MODEL {name}, DESCRIPTOR(txt))"
    return [tuple(row) for row in t_env.execute_sql(query).collect()]


def test_a_chat(endpoint: Endpoint) -> None:
    options = {"temperature": "0.5", "top_p": "0.9", "max_tokens": "7", "presence_penalty": "1", "n": "2", "seed": "3"}
    t_env = environment(endpoint, 2, **options, stop="a,b", response_format="json_object", system_prompt="Be brief.")
    answers = [(i, f"text {i}", f"text {i}!{number}") for i in range(2) for number in range(2)]
    assert predicted(t_env) == answers
    request = next(request for request in endpoint.requests if request["messages"][1]["content"] == "text 0")
    assert request == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "text 0"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "presence_penalty": 1.0,
        "n": 2,
        "seed": 3,
        "stop": ["a", "b"],
        "response_format": {"type": "json_object"},
    }
    assert endpoint.keys == {f"Bearer {KEY}"}


def test_vectors_in_batches(endpoint: Endpoint) -> None:
    t_env = environment(endpoint, 12)
    change(t_env, "vectors", batch_size="5", dimension="2")
    rows = predicted(t_env, "vectors")
    assert rows == [(i, f"text {i}", [len(f"text {i}"), 0.5]) for i in range(12)]
    assert sorted(len(request["input"]) for request in endpoint.requests) == [2, 5, 5]
    assert {request["dimensions"] for request in endpoint.requests} == {2}


def test_a_null_has_no_prediction(endpoint: Endpoint) -> None:
    t_env = environment(endpoint)
    table = "(SELECT id, NULLIF(txt, 'text 1') AS txt FROM texts)"
    assert [row[0] for row in predicted(t_env, table=table)] == [0, 2]


def test_failures_for_a_while_are_repeated() -> None:
    seed = fresh_seeds()[0]
    print(f"seed {seed}")
    with serving(Endpoint(failing=0.3, seed=seed)) as endpoint:
        t_env = environment(endpoint, 60)
        assert predicted(t_env) == [(i, f"text {i}", f"text {i}!0") for i in range(60)]
        assert len(endpoint.requests) == 60 + endpoint.failures


def test_other_failures_are_not_repeated(endpoint: Endpoint) -> None:
    endpoint.status = 400
    with pytest.raises(JobExecutionError, match="answered with status 400") as error:
        predicted(environment(endpoint, 1))
    assert len(endpoint.requests) == 1
    assert KEY not in str(error.value)
    assert "not now, Bearer ******" in str(error.value)


@pytest.mark.parametrize(
    ("options", "requests", "is_ignored"),
    [
        ({"retry_num": "2"}, 3, False),
        ({"retry_num": "2", "retry_fallback_strategy": "ignore"}, 3, True),
        ({"error_handling_strategy": "failover"}, 1, False),
        ({"error_handling_strategy": "ignore"}, 1, True),
    ],
)
def test_strategies(
    endpoint: Endpoint, options: dict[str, str], requests: int, is_ignored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status = 503
    t_env = environment(endpoint, 1, **options)
    if is_ignored:
        with caplog.at_level(logging.WARNING):
            assert predicted(t_env) == []
        assert "1 rows are left out" in caplog.text
        assert KEY not in caplog.text
    else:
        with pytest.raises(JobExecutionError, match="answered with status 503"):
            predicted(t_env)
    assert len(endpoint.requests) == requests


def test_answers_of_another_form_fail_the_job(endpoint: Endpoint) -> None:
    endpoint.content = {"data": []}
    t_env = environment(endpoint, 1)
    with pytest.raises(JobExecutionError, match="the endpoint's answer has another form"):
        predicted(t_env)
    with pytest.raises(JobExecutionError, match="fewer vectors than texts"):
        predicted(t_env, "vectors")


def test_an_endpoint_that_is_away(endpoint: Endpoint) -> None:
    t_env = environment(endpoint, 1, endpoint="http://127.0.0.1:9/chat/completions", retry_num="1")
    with pytest.raises(JobExecutionError, match="Connect"):
        predicted(t_env)


def test_a_response_that_takes_too_long(endpoint: Endpoint) -> None:
    endpoint.latency_s = 0.5
    with pytest.raises(JobExecutionError, match="took longer than 20 ms"):
        predicted(environment(endpoint, 1, request_timeout="20 ms", retry_num="0"))


def test_the_limit_of_requests_is_of_the_whole_job(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of four subtasks begins a quarter of the requests: one every 400 ms, of 10 a second."""
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(round(delay_s, 3))

    async def ask(predictor: AsyncPredictor) -> None:
        metrics = MetricGroup(MetricRegistry(lambda: 0))
        await predictor.open(FunctionContext(metrics, {}, number_of_parallel_subtasks=4))
        monkeypatch.setattr(asyncio, "sleep", sleep)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 7.0)
        for _ in range(4):
            await predictor._limit.wait()  # type: ignore[attr-defined]
        monkeypatch.undo()
        await predictor.close()

    t_env = environment(endpoint, requests_per_second="10")
    asyncio.run(ask(t_env.from_model("chat")._model.provider.async_predictor()))
    assert slept == [0.4, 0.8, 1.2]


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("chat/completions", "INPUT (a INT) OUTPUT (b STRING)", "should have exactly one input column, of type STRING"),
        (
            "chat/completions",
            "INPUT (a STRING) OUTPUT (b INT)",
            "exactly one output column, of type STRING",
        ),
        ("embeddings", "INPUT (a STRING) OUTPUT (b STRING)", "exactly one output column, of type ARRAY<FLOAT>"),
        ("embeddings", "INPUT (a STRING, b STRING) OUTPUT (c ARRAY<FLOAT>)", "exactly one input column"),
    ],
)
def test_columns_of_a_model(endpoint: Endpoint, name: str, columns: str, message: str) -> None:
    t_env = environment(endpoint)
    options = f"'provider' = 'openai', 'endpoint' = '{endpoint.url}{name}', 'api-key' = 'k', 'model' = 'm'"
    t_env.execute_sql(f"CREATE MODEL x9 {columns} WITH ({options})")
    with pytest.raises(ValidationError, match=message):
        t_env.from_model("x9")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperatur": "1"}, "Unsupported options found for model default_catalog.default_database.chat: temperatur"),
        ({"batch_size": "2"}, "Unsupported options found"),
        ({"retry_num": "-1"}, "Invalid value for option 'retry-num'"),
        ({"error_handling_strategy": "hope"}, "write one of RETRY, FAILOVER, IGNORE"),
        ({"requests_per_second": "-1"}, "Invalid value for option 'requests-per-second'"),
    ],
)
def test_wrong_options(endpoint: Endpoint, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        environment(endpoint, **options).from_model("chat")
    assert message in str(error.value)


def test_counting_tokens_is_refused_by_name(endpoint: Endpoint) -> None:
    with pytest.raises(UnsupportedError, match="option 'max-context-size' of model default_catalog"):
        environment(endpoint, max_context_size="10").from_model("chat")
