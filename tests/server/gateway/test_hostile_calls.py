"""Random calls, most of them wrong: each gets an answer of the protocol, and the sessions go on."""

from __future__ import annotations

import json
import logging
import random
from typing import Any

import pytest
from tests.effort import tries
from tests.server.gateway.rig import NOBODY, gateway
from tests.simulation.fresh_seeds import commit_number

from penstock.server.gateway.routes import TABLE

CALLS = tries(400)
TEXTS = [
    "",
    "x",
    "\x00",
    "é😀",
    "'",
    "%2e%2e",
    "null",
    "SELECT 1",
    "SELECT 1; SELECT 2",
    "SET",
    "SHOW JOBS",
    "a" * 5_000,
]
VALUES: list[Any] = [None, True, -1, 0, 2**63, 1e300, [], {}, [[]], {"a": {}}, *TEXTS]
FIELDS = [
    "statement",
    "executionTimeout",
    "executionConfig",
    "sessionName",
    "properties",
    "position",
    "script",
    "isPeriodic",
]
BODIES = [
    "",
    "{",
    "[]",
    "null",
    "5",
    '"',
    "\ufeff{}",
    '{"statement":"\\ud800"}',
    "[" * 5_000,
    '{"properties":{"a":null}}',
]


def build_path(dice: random.Random, route: str, session: str, operation: str) -> str:
    places = {
        ":session_handle": [session, session, NOBODY, "zzz", "1-1-1-1-1", f"{{{NOBODY}}}"],
        ":operation_handle": [operation, operation, NOBODY, "zzz"],
        ":token": ["0", "1", "-1", "+1", "x", "1_0", "%D9%A3", "9" * 30, "0x1", "1e3"],
        ":identifier": ["t", "%00", "a" * 300],
    }
    parts = [dice.choice(places[part]) if part in places else part for part in route.split("/")]
    version = dice.choice(["", "/v1", "/v2", "/v3", "/v4", "/v5"])
    query = dice.choice(
        ["", "", "?rowFormat=JSON", "?rowFormat=PLAIN_TEXT", "?rowFormat=", "?rowFormat=json", "?x=%zz"]
    )
    return version + "/".join(parts) + query


def build_body(dice: random.Random) -> Any:
    if dice.random() < 0.2:
        return dice.choice(BODIES)
    if dice.random() < 0.1:
        return None
    return {name: dice.choice(VALUES) for name in dice.sample(FIELDS, dice.randrange(4))}


def test_no_call_breaks_the_gateway(caplog: pytest.LogCaptureFixture) -> None:
    seed = commit_number()
    print(f"seed {seed}")
    dice = random.Random(seed)
    codes: dict[int, int] = {}
    with caplog.at_level(logging.ERROR, "penstock.rest"), gateway() as client:
        witness, session = client.open(), client.open()
        operation = client.submit(session, "SHOW CATALOGS").rpartition("/")[2]
        for _ in range(CALLS):
            method, route, *_ = dice.choice(TABLE)
            path = build_path(dice, route, session.rpartition("/")[2], operation)
            if method == "DELETE" and route == "/sessions/:session_handle":
                path = path.replace(session.rpartition("/")[2], NOBODY)
            body = build_body(dice)
            code, text = client.ask(dice.choice([method, method, method, "GET", "POST"]), path, body)
            codes[code] = codes.get(code, 0) + 1
            assert code in (200, 400, 404, 500), (path, body, text)
            answer = json.loads(text)
            assert code == 200 or answer["errors"], text
            assert "has its traceback" not in text, (path, body)
        assert client.rows(witness, "SHOW CURRENT CATALOG") == [["default_catalog"]]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert set(codes) == {200, 400, 404, 500}
