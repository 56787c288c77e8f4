"""The OpenAPI document, and requests made from it: none of them may be answered by an error of the server.

With more requests, against a job that runs: `python -m tests.server.rest.check_jobs --port 8081`, and in another
shell `schemathesis run http://127.0.0.1:8081/openapi.json --exclude-path /cluster --max-examples 60`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.server.rest.rig import COUNT, JOB, SOURCE, Handle, a_view, serving

from penstock.server.rest.application import ROUTES, document

pytestmark = pytest.mark.slow

#: What an answer must keep; positive and negative data are refused or taken by rules that a schema cannot tell.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_each_route_is_described_once() -> None:
    described = document(ROUTES)
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) == len(ROUTES)


def of_this_job() -> dict[str, Any]:
    """The document, with the ids of what is there in the place of any ids; wrong ones are made from it all the same."""
    described: dict[str, Any] = json.loads(json.dumps(document(ROUTES)))
    known: dict[str, list[Any]] = {
        "jobid": [JOB],
        "applicationid": [JOB],
        "vertexid": [SOURCE, COUNT],
        "subtaskindex": [0, 1, 7],
        "attempt": [0, 1],
        "checkpointid": [1, 2, 3],
        "taskmanagerid": ["worker-1-aaaa", "driver"],
        "filename": ["penstock.log", "other.log"],
    }
    for path in described["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in known:
                    parameter["schema"] = {"enum": known[parameter["name"]]}
    return described


def test_no_request_that_the_document_allows_or_forbids_breaks_the_server(tmp_path: Path) -> None:
    handle = Handle(a_view())
    handle.savepoint.set_result("file:///s")
    (tmp_path / "openapi.json").write_text(json.dumps(of_this_job()))
    with serving(handle) as client:
        command = [
            str(Path(sys.executable).parent / "schemathesis"),
            "run",
            "openapi.json",
            f"--url={client.server.url}",
            "--exclude-path=/cluster",
            "--exclude-path-regex=/rescaling",  # 503, as in Flink
            f"--checks={CHECKS}",
            "--phases=fuzzing",
            "--max-examples=4",
            "--mode=all",
            "--seed=1",
            "--no-color",
            "--suppress-health-check=all",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert ("cancel" in handle.asked, ("savepoint", None) in handle.asked) == (True, True), "it met the job"
        assert client.get("/overview").code == 200
