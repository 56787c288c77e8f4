"""`OpenAIProvider`: models behind an HTTP endpoint of the form of OpenAI's, with the options of Flink's `openai`.

An endpoint that ends in `chat/completions` answers a text with texts, one that ends in `embeddings` a text with a
vector. Calls are asynchronous. A request that fails for a while (no connection, no response in time, status 408, 409,
429 or 5xx) is repeated after a delay that doubles, or that the response names.

The options that Flink does not have: `request-timeout`, `requests-per-second`, `batch-size` (of embeddings),
`retry-delay` and `retry-delay-max`. The limit of requests per second is of the whole job: its subtasks share it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.config_options import DURATION_MS, FLOAT, INTEGER, STRING, ConfigOption, choice
from penstock.base.errors import CallTimeoutError, PenstockError, UnsupportedError, WrongValueError
from penstock.base.secrets import hide, remember
from penstock.connectors.http_client import HttpClient, Response
from penstock.sql.data.arrow import to_column
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import ArrayType, DataType, FloatType, VarCharType
from penstock.sql.models.provider import AsyncPredictor, ModelContext, ModelProvider, Predictions
from penstock.sql.user_functions.classes import FunctionContext

_LOG: Final = logging.getLogger(__name__)

ENDPOINT: Final = ConfigOption("endpoint", STRING, "")
API_KEY: Final = ConfigOption("api-key", STRING, "")
MODEL: Final = ConfigOption("model", STRING, "")
_REQUIRED: Final = (ENDPOINT, API_KEY, MODEL)

STRATEGY: Final = ConfigOption("error-handling-strategy", choice("RETRY", "FAILOVER", "IGNORE"), "RETRY")
RETRIES: Final = ConfigOption("retry-num", INTEGER, 100)
FALLBACK: Final = ConfigOption("retry-fallback-strategy", choice("FAILOVER", "IGNORE"), "FAILOVER")
REQUEST_TIMEOUT_MS: Final = ConfigOption("request-timeout", DURATION_MS, 60_000)
REQUESTS_PER_SECOND: Final = ConfigOption("requests-per-second", FLOAT, 0.0)
RETRY_DELAY_MS: Final = ConfigOption("retry-delay", DURATION_MS, 500)
RETRY_DELAY_MAX_MS: Final = ConfigOption("retry-delay-max", DURATION_MS, 8_000)
_COMMON: Final = (
    STRATEGY,
    RETRIES,
    FALLBACK,
    REQUEST_TIMEOUT_MS,
    REQUESTS_PER_SECOND,
    RETRY_DELAY_MS,
    RETRY_DELAY_MAX_MS,
)

SYSTEM_PROMPT: Final = ConfigOption("system-prompt", STRING, "You are a helpful assistant.")
#: options that are passed on, with the names of the request
_PASSED: Final[dict[ConfigOption[Any], str]] = {
    ConfigOption("temperature", FLOAT, 0.0): "temperature",
    ConfigOption("top-p", FLOAT, 0.0): "top_p",
    ConfigOption("max-tokens", INTEGER, 0): "max_tokens",
    ConfigOption("presence-penalty", FLOAT, 0.0): "presence_penalty",
    ConfigOption("n", INTEGER, 1): "n",
    ConfigOption("seed", INTEGER, 0): "seed",
}
STOP: Final = ConfigOption("stop", STRING, "")
RESPONSE_FORMAT: Final = ConfigOption("response-format", choice("text", "json_object"), "text")
DIMENSION: Final = ConfigOption("dimension", INTEGER, 0)
BATCH_SIZE: Final = ConfigOption("batch-size", INTEGER, 1)
_CHAT: Final = (SYSTEM_PROMPT, *_PASSED, STOP, RESPONSE_FORMAT)
_EMBEDDINGS: Final = (DIMENSION, BATCH_SIZE)
#: options of Flink that need a tokenizer
_OF_TOKENS: Final = ("max-context-size", "context-overflow-action")

_TEMPORARY: Final = frozenset({408, 409, 429})
_SERVER_ERROR: Final = 500
_OK: Final = range(200, 300)
_MESSAGE_CHARS_MAX: Final = 500
_MS_A_SECOND: Final = 1_000
_DELAY_MAX_MS: Final = 60_000.0
_TEXT: Final = VarCharType(2_147_483_647)
_VECTOR: Final = ArrayType(FloatType())


class RequestError(PenstockError, RuntimeError):
    """Raised for a request that a model's endpoint did not answer."""


class OpenAIProvider(ModelProvider):
    """See the module docstring. Raises `ValidationError` for wrong options, and for columns that do not fit."""

    def __init__(self, context: ModelContext) -> None:
        options = self._options = context.options
        for key in _OF_TOKENS:
            if key in options:
                raise UnsupportedError(
                    f"option '{key}' of model {options.title} is not supported: it counts tokens, and Penstock has no "
                    "tokenizer. Cut long texts in SQL, as with LEFT(text, n)"
                )
        path = options.get(ENDPOINT.key(), "").partition("?")[0].rstrip("/")
        self.is_chat = not path.endswith("embeddings")
        if ENDPOINT.key() in options and self.is_chat and not path.endswith("chat/completions"):
            raise options.wrong(ENDPOINT.key(), "it must end in chat/completions or embeddings")
        context.check(_REQUIRED, (*_COMMON, *(_CHAT if self.is_chat else _EMBEDDINGS)))
        _check_columns(context, "input", _TEXT)
        _check_columns(context, "output", _TEXT if self.is_chat else _VECTOR)
        self.batch_rows = 1 if self.is_chat else options.read(BATCH_SIZE)
        for option, least in ((BATCH_SIZE, 1), (RETRIES, 0)):
            if options.read(option) < least:
                raise options.wrong(option.key(), f"it must be at least {least}")
        if options.read(REQUESTS_PER_SECOND) < 0:
            raise options.wrong(REQUESTS_PER_SECOND.key(), "it must be above 0")
        try:
            HttpClient(options.read(ENDPOINT), {}, 0)
        except WrongValueError as error:
            raise options.wrong(ENDPOINT.key(), str(error)) from error
        self.output_type: DataType = context.outputs[0].type

    def async_predictor(self) -> AsyncPredictor:
        """See `ModelProvider`."""
        return _Requests(self)

    def read(self, option: ConfigOption[Any]) -> Any:
        """Return the value of an option."""
        return self._options.read(option)

    @property
    def title(self) -> str:
        """The path of the model."""
        return self._options.title

    def body(self, texts: list[str]) -> dict[str, Any]:
        """Return the body of a request for these texts."""
        read, options = self.read, self._options
        if not self.is_chat:
            size = {"dimensions": read(DIMENSION)} if DIMENSION.key() in options else {}
            return {"model": read(MODEL), "input": texts if len(texts) > 1 else texts[0], **size}
        messages = [
            {"role": "system", "content": read(SYSTEM_PROMPT)},
            *({"role": "user", "content": text} for text in texts),
        ]
        body = {"model": read(MODEL), "messages": messages}
        body |= {name: read(option) for option, name in _PASSED.items() if option.key() in options}
        if STOP.key() in options:
            body["stop"] = read(STOP).split(",")
        if RESPONSE_FORMAT.key() in options:
            body["response_format"] = {"type": read(RESPONSE_FORMAT)}
        return body

    def answers(self, content: Any, count: int) -> list[list[Any]]:
        """Return the answers in a response to `count` texts: for each text a list of texts or vectors."""
        if self.is_chat:
            return [[choice["message"]["content"] for choice in content["choices"]]]
        answers: list[list[Any]] = [[] for _ in range(count)]
        for position, item in enumerate(content["data"]):
            answers[item.get("index", position)].append(item["embedding"])
        return answers


def _check_columns(context: ModelContext, side: str, wanted: DataType) -> None:
    columns = context.inputs if side == "input" else context.outputs
    kinds = [str(column.type.nullable()) for column in columns]
    if len(kinds) != 1 or not isinstance(columns[0].type, type(wanted)):
        raise ValidationError(
            f"Model {context.options.title} should have exactly one {side} column, of type {wanted}, and has "
            f"{len(kinds)}: {', '.join(kinds)}"
        )


class _Limit:
    """Spaces requests, so that no more than `rate` begin in a second; 0 for no limit."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        if not self._gap:
            return
        now = asyncio.get_running_loop().time()
        begin = max(now, self._next)
        self._next = begin + self._gap
        if begin > now:
            await asyncio.sleep(begin - now)


class _Requests(AsyncPredictor):
    """The requests of one subtask."""

    def __init__(self, provider: OpenAIProvider) -> None:
        self._provider = provider
        self._client: HttpClient | None = None
        self._holding: asyncio.Task[None] | None = None

    async def open(self, context: FunctionContext) -> None:
        """See `AsyncPredictor`."""
        read = self._provider.read
        remember({API_KEY.key(): read(API_KEY)})
        headers = {
            "Authorization": f"Bearer {read(API_KEY)}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "penstock",
        }
        self._client = HttpClient(read(ENDPOINT), headers, read(REQUEST_TIMEOUT_MS))
        self._holding = asyncio.create_task(self._hold(self._client))
        await asyncio.sleep(0)  # so that the task has begun, and closes the connections even if the loop ends at once
        self._limit = _Limit(read(REQUESTS_PER_SECOND) / (context.get_number_of_parallel_subtasks() or 1))
        metrics = context.get_metric_group()
        self._requests, self._failures = metrics.counter("numModelRequests"), metrics.counter("numModelRequestErrors")
        self._retries, self._ignored = metrics.counter("numModelRetries"), metrics.counter("numModelRowsIgnored")
        self._latency_ms = metrics.distribution("modelRequestLatency")

    async def _hold(self, client: HttpClient) -> None:
        """Close the connections when the task is cancelled: by `close`, or by the end of the event loop."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            client.close()

    async def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """See `AsyncPredictor`. A row whose text is NULL gets no prediction."""
        texts = inputs.column(0).to_pylist()
        rows = [number for number, text in enumerate(texts) if text is not None]
        kind = self._provider.output_type
        if not rows:
            return Predictions([to_column([], kind)], np.array([], np.int64))
        try:
            answers = await self._ask([texts[number] for number in rows])
        except Exception as error:
            if not self._ignores():
                raise
            _LOG.warning("model %s: %d rows are left out: %s", self._provider.title, len(rows), hide(str(error)))
            self._ignored.inc(len(rows))
            answers = [[] for _ in rows]
        parents = [number for number, given in zip(rows, answers, strict=True) for _ in given]
        values = [value for given in answers for value in given]
        return Predictions([to_column(values, kind)], np.array(parents, np.int64))

    def _ignores(self) -> bool:
        read = self._provider.read
        return bool(read(STRATEGY) == "IGNORE" or (read(STRATEGY) == "RETRY" and read(FALLBACK) == "IGNORE"))

    async def _ask(self, texts: list[str]) -> list[list[Any]]:
        """Send a request, and repeat it while it fails for a while."""
        read = self._provider.read
        body = json.dumps(self._provider.body(texts)).encode()
        retries = read(RETRIES) if read(STRATEGY) == "RETRY" else 0
        delay_ms = read(RETRY_DELAY_MS)
        for attempt in range(retries + 1):
            try:
                return self._read(await self._send(body), len(texts))
            except (OSError, CallTimeoutError, _Temporary) as error:
                self._failures.inc()
                if attempt == retries:
                    if isinstance(error, _Temporary):
                        raise RequestError(str(error)) from None
                    raise
                wait_ms = getattr(error, "after_ms", None)
                if wait_ms is None:
                    # Spread, so that requests that failed together do not come back together.
                    wait_ms = delay_ms * random.uniform(0.75, 1)
                    delay_ms = min(2 * delay_ms, read(RETRY_DELAY_MAX_MS))
            except RequestError:
                self._failures.inc()
                raise
            self._retries.inc()
            await asyncio.sleep(wait_ms / _MS_A_SECOND)
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, body: bytes) -> Response:
        assert self._client is not None
        await self._limit.wait()
        self._requests.inc()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        response = await self._client.post(body)
        self._latency_ms.update(round((loop.time() - begin) * _MS_A_SECOND))
        return response

    def _read(self, response: Response, count: int) -> list[list[Any]]:
        if response.status not in _OK:
            text = hide(response.body[:_MESSAGE_CHARS_MAX].decode("utf-8", "replace"))
            reason = f"model {self._provider.title}: the endpoint answered with status {response.status}: {text}"
            if response.status in _TEMPORARY or response.status >= _SERVER_ERROR:
                raise _Temporary(reason, _read_delay(response))
            raise RequestError(reason)
        try:
            answers = self._provider.answers(json.loads(response.body), count)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            text = hide(response.body[:_MESSAGE_CHARS_MAX].decode("utf-8", "replace"))
            raise RequestError(
                f"model {self._provider.title}: the endpoint's answer has another form: {text}"
            ) from error
        if self._provider.is_chat or all(answers):
            return answers
        raise RequestError(f"model {self._provider.title}: the endpoint answered with fewer vectors than texts")

    async def close(self) -> None:
        """See `AsyncPredictor`."""
        holding, self._holding = self._holding, None
        if holding is not None:
            holding.cancel()
            await asyncio.wait([holding])


class _Temporary(Exception):
    """A response that says that the same request may succeed later. `after_ms`: when, if it says so."""

    def __init__(self, reason: str, after_ms: float | None) -> None:
        super().__init__(reason)
        self.after_ms = after_ms


def _read_delay(response: Response) -> float | None:
    """Return the delay (ms) that a response asks for, at most a minute; None if it names none."""
    for name, factor in (("retry-after-ms", 1), ("retry-after", _MS_A_SECOND)):
        try:
            delay_ms = float(response.headers[name]) * factor
        except (KeyError, ValueError):
            continue
        return min(max(delay_ms, 0.0), _DELAY_MAX_MS)
    return None
