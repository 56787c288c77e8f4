"""The recorded calls of Flink's clients and of probes, sent to a gateway again, and what came back as lines of text.

`recorded_calls.json` has the calls of a session of the JDBC driver, of the SQL client and of dbt-flink-adapter, and
probes of all paths and types. Handles are names, such as `$S0` and `$O3`; the pages of a result are one step, `fetch`,
which says whether the client read to the end. Batch is replaced by streaming, so that no Spark is needed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from tests.server.gateway.rig import Client

CALLS: Final = Path(__file__).parent / "recorded_calls.json"
#: Statements whose rows are another matter: plans, lists that differ, random rows, jobs of others.
_ROWS_VARY: Final = re.compile(r"\s*(EXPLAIN|SET;?$|SHOW (JOBS|FUNCTIONS)|SELECT \* FROM t2?\b)", re.I)
_BATCH: Final = re.compile(r"('execution\.runtime-mode'\s*=\s*|\"execution\.runtime-mode\":\s*)(['\"])batch", re.I)
#: Queries that fail at Flink and not here: values of type NULL, and the text of an infinity as a FLOAT.
_FAILS_AT_FLINK: Final = ("SELECT NULL", "SELECT CAST('-Infinity' AS FLOAT) AS v")
_ROWS_SHOWN: Final = 3
_SESSION_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Replay:
    """Sends the calls of one conversation. `lines` is what came back."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._handles: dict[str, str] = {}
        self._counts = {"S": 0, "O": 0}
        self._statements: dict[str, str] = {}
        self.lines: list[str] = []

    def run(self, steps: list[dict[str, Any]]) -> None:
        """Run all steps, and end the sessions."""
        for step in steps:
            if "call" in step:
                self._call(step)
            else:
                self._fetch(step)
        for name, handle in self._handles.items():
            if name.startswith("$S"):
                self._client.ask("DELETE", f"/v4/sessions/{handle}")

    def _real(self, text: str) -> str:
        return re.sub(r"\$[SO]\d+", lambda match: self._handles.get(match[0], match[0]), text)

    def _call(self, step: dict[str, Any]) -> None:
        method, path = step["call"].split(" ")
        if path.endswith("/scripts"):  # Penstock runs it; Flink does so on Kubernetes and YARN alone
            self.lines += [f"> {step['call']}", "(differs)"]
            return
        body = step.get("body")
        if isinstance(body, dict):
            body = json.loads(self._real(_BATCH.sub(r"\1\2streaming", json.dumps(body))))
        code, text = self._client.ask(method, self._real(path), {} if body is None and method == "POST" else body)
        if path.endswith("/status"):
            while code == 200 and ("PENDING" in text or "RUNNING" in text):
                code, text = self._client.ask(method, self._real(path))
        self.lines.append(f"> {step['call']} {json.dumps(body)[:200] if body is not None else ''}".rstrip())
        operation = path.split("/")[-2] if path.endswith("/status") else ""
        fails = self._statements.get(operation) in _FAILS_AT_FLINK
        self.lines += ["(differs)"] if fails else self._show(code, text)
        if code == 200 and (found := re.search(r'"(session|operation)Handle":"([^"]+)"', text)):
            kind = "S" if found[1] == "session" else "O"
            name = f"${kind}{self._counts[kind]}"
            self._counts[kind] += 1
            self._handles[name] = found[2]
            self._statements[name] = str((body or {}).get("statement")) if isinstance(body, dict) else ""

    @staticmethod
    def _show(code: int, text: str) -> list[str]:
        answer = json.loads(text)
        if "properties" in answer:
            return [f"{code} properties"]
        if "candidates" in answer:
            return [f"{code} {answer['candidates'][0]}, …"]
        if "errors" not in answer:
            return [f"{code} {_SESSION_ID.sub('<id>', text)}"]
        lines = []
        for entry in answer["errors"]:
            first, *others = [line for line in entry.split("\n") if not line.startswith("\t")]
            first, without_reason, _ = first.partition("Could not map response to JSON.")
            lines.append(f"{code} error: {_SESSION_ID.sub('<id>', first + without_reason)}")
            if first.startswith("<Exception"):
                lines.append(f"{code} error: {_SESSION_ID.sub('<id>', others[0])}")
        return lines

    def _fetch(self, step: dict[str, Any]) -> None:
        path = step["fetch"]
        statement = self._statements.get(path.rpartition("/")[2], "")
        self.lines.append(f"> fetch {path} {step['format']}: {' '.join(statement.split())[:200]}")
        begin = len(self.lines)
        query = "" if step["format"] is None else f"?rowFormat={step['format']}"
        rows: list[str] = []
        head: str | None = None
        token = 0
        while True:
            code, text = self._client.ask("GET", f"{self._real(path)}/result/{token}{query}")
            if code != 200:
                self.lines += self._show(code, text)
                break
            kind = json.loads(text)["resultType"]
            if kind == "NOT_READY":
                continue
            shown, _, data = text.partition(',"rowFormat"')
            head = head or re.sub(r'"jobID":"[0-9a-f]{32}"', '"jobID":"<job>"', shown.replace(kind, "PAGE", 1))
            rows += re.findall(r'\{"kind":"[A-Z_]+","fields":\[.*?\]\}(?=,\{"kind"|\]\})', data)
            token += 1
            if kind == "EOS" or (not step["ends"] and len(rows) >= _ROWS_SHOWN):
                break
        if statement in _FAILS_AT_FLINK:
            del self.lines[begin:]
            self.lines.append("(differs)")
            return
        self.lines += [] if head is None else [head]
        if _ROWS_VARY.match(statement):
            self.lines.append("rows")
        else:
            count = f"{len(rows)} rows" if step["ends"] else "rows"
            job = re.compile(r'"[0-9a-f]{32}"')
            self.lines += [*(job.sub('"<job>"', row) for row in rows[:_ROWS_SHOWN]), count]


CONVERSATIONS: Final[dict[str, list[dict[str, Any]]]] = {
    conversation["name"]: conversation["steps"] for conversation in json.loads(CALLS.read_text())
}


def replay(client: Client, name: str) -> list[str]:
    """Send the recorded calls of a conversation, and return what came back."""
    running = Replay(client)
    running.run(CONVERSATIONS[name])
    return [f"# {name}", *running.lines]
