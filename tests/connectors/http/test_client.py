"""The client of HTTP services: responses of all forms, and connections that are used again, or not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import h11
import pytest
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import WrongValueError
from penstock.connectors.http_client import HttpClient, Response, _read_usual_head

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Kind: tea\r\n\r\nwater"


def run(parts: Sequence[bytes], ask: Callable[[HttpClient], Awaitable[Any]], closes: bool = False) -> tuple[Any, int]:
    """Return what `ask` returns, and the number of connections; each request is answered in these parts."""
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.partition(b":")[2]))
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                if closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def main() -> Any:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {"User-Agent": "test"}, 5_000)
        try:
            return await ask(client)
        finally:
            client.close()
            server.close()
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
            await asyncio.sleep(0.01)  # transports close

    return asyncio.run(main()), connections


async def ask_twice(client: HttpClient) -> list[Response]:
    return [await client.request("POST", "/a", b"one"), await client.request("POST", "/b", b"")]


@pytest.mark.parametrize(
    ("response", "body", "connections"),
    [
        (OK, b"water", 1),
        (OK.replace(b": 5", b":5 ").replace(b"OK", b""), b"water", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"water", 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwat\r\n2\r\ner\r\n0\r\n\r\n", b"water", 1),
        (OK.replace(b"X-Kind: tea", b"Connection: close"), b"water", 2),
        (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), b"water", 2),
        (OK + b"HTTP/1.1 500 Not asked for\r\nContent-Length: 0\r\n\r\n", b"water", 2),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", 1),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", 1),
        (OK.replace(b"\r\n", b"\n"), b"water", 1),
    ],
)
def test_responses_of_all_forms(response: bytes, body: bytes, connections: int) -> None:
    cuts = [len(response)] if len(response) > len(OK) + 30 else [1, 20, len(response)]
    for cut in cuts:
        parts = [response[start : start + cut] for start in range(0, len(response), cut)]
        responses, count = run(parts, ask_twice)
        assert [each.body for each in responses] == [body, body]
        assert count == connections


def test_a_response_that_ends_with_its_connection() -> None:
    responses, count = run([b"HTTP/1.1 200 OK\r\n\r\nwa", b"ter"], ask_twice, closes=True)
    assert [each.body for each in responses] == [b"water", b"water"]
    assert count == 2


def test_a_connection_that_was_closed_while_it_was_idle_is_replaced() -> None:
    async def ask(client: HttpClient) -> list[Response]:
        first = await client.request("POST", "/", b"")
        await asyncio.sleep(0.05)
        return [first, await client.request("POST", "/", b"")]

    responses, count = run([OK], ask, closes=True)
    assert [each.headers["x-kind"] for each in responses] == ["tea", "tea"]
    assert count == 2


@pytest.mark.parametrize("response", [b"", OK[:10], OK[:-2], b"water\r\n\r\n", OK.replace(b": 5", b": -5")])
def test_a_response_that_breaks_off_is_an_error_of_the_connection(response: bytes) -> None:
    with pytest.raises(ConnectionError):
        run([response], ask_twice, closes=True)


def test_headers_that_would_end_the_head_are_refused() -> None:
    for headers, error in (
        ([("X", "1\r\nY: 2")], h11.LocalProtocolError),
        ([("Content-Length", "7")], WrongValueError),
    ):
        with pytest.raises(error):
            run([OK], lambda client, headers=headers: client.request("POST", "/", b"", headers))  # type: ignore[misc]


def test_what_is_read_without_h11_is_what_h11_reads() -> None:
    """Responses with random faults, from a fresh seed."""
    seed = commit_number()
    print(f"seed {seed}")
    choose = random.Random(seed)
    pieces = [b"\r\n", b"\n", b":", b" ", b"\t", b"\x00", b"5", b"\xe4", b"+", b"_", b"204", b"HTTP/1.0"]
    pieces += [b"Content-Length: 5\r\n", b"Connection: close\r\n", b"Transfer-Encoding: chunked\r\n"]
    usual = 0
    for _ in range(3_000):
        content = OK
        for _ in range(choose.randint(0, 3)):
            at = choose.randint(0, len(content))
            content = content[:at] + choose.choice([*pieces, b""]) + content[at + choose.choice([0, 1]) :]
        read = _read_usual_head(content)
        if read is None:
            continue
        usual += 1
        response, start, length = read
        state = h11.Connection(h11.CLIENT)
        state.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
        state.send(h11.EndOfMessage())
        state.receive_data(content[:start] + b"x" * length)
        event = state.next_event()
        assert isinstance(event, h11.Response), content
        assert event.status_code == response.status
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        assert headers == response.headers, content
        if length:
            assert len(state.next_event().data) == length  # type: ignore[union-attr]
        assert isinstance(state.next_event(), h11.EndOfMessage)
        assert state.their_state is h11.DONE, content
    assert usual > 300
