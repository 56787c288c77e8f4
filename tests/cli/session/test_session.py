"""A session on the local target: programs in processes of their own behind one server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from tests.cli.session.sessions import SessionRig, session_in, until

from penstock.base.errors import OperationError
from penstock.cli.client.rest_client import Address, RestClient
from penstock.cli.main import main


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionRig]:
    home = tmp_path_factory.mktemp("home")
    with session_in(home, {"execution.target": "local", "jobstore.max-capacity": "5"}) as tested:
        yield tested


def penstock(session: SessionRig, *args: str, code: int = 0) -> str:
    """What a command prints; the token comes from the registry of sessions."""
    result = CliRunner().invoke(main, [args[0], "-m", session.known.address.removeprefix("http://"), *args[1:]])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.slow
def test_programs_have_processes_of_their_own_and_one_server(session: SessionRig, tmp_path: Path) -> None:
    """Two at a time; each is found by its id and its name; one that crashes leaves the others and the session."""
    file, session.file = session.file, tmp_path / "crash"
    stays, breaks = session.run("stays"), session.run("breaks", "crash")
    session.file = file
    until(lambda: session.checkpoints(stays) and session.checkpoints(breaks))
    programs = session.client.get("/programs")["programs"]
    assert len({program["process"] for program in programs}) == len(programs) == 2
    assert f"{stays} : stays (RUNNING)" in penstock(session, "list")
    (tmp_path / "crash").touch()
    until(lambda: session.state(breaks) == "FAILED")
    (error,) = session.client.get(f"/jobs/{breaks}/exceptions")["exceptionHistory"]["entries"]
    assert "the program's process ended with 9 before the job did" in error["stacktrace"]
    assert session.state(stays) == "RUNNING"
    (program,) = [one for one in session.client.get("/programs")["programs"] if one["jobs"] == [breaks]]
    assert (program["status"], program["exit-code"]) == ("FAILED", 9)

    assert "checkpoint" in penstock(session, "checkpoint", "stays").lower()
    path = json.loads(penstock(session, "savepoint", "stays", str(tmp_path), "--json"))["savepoint"]
    assert "penstock.job" in penstock(session, "logs", "stays")
    assert "program stays in " in penstock(session, "logs", "stays", "--stdout")
    workers = session.client.get("/taskmanagers")["taskmanagers"]
    printed = [session.client.text("GET", f"/taskmanagers/{worker['id']}/stdout") for worker in workers]
    assert any("program stays in " in text for text in printed), "its workers are threads of the program's process"
    assert "stays" in penstock(session, "top", "stays", "--once")
    assert "Keyed Sum" in penstock(session, "info", "stays")
    assert session.client.get(f"/jobs/{stays}/resource-requirements")
    json.loads(penstock(session, "stop", "stays", "-p", str(tmp_path), "--json"))
    until(lambda: session.state(stays) == "FINISHED")
    assert session.checkpoints(stays) > 0, "the last view of a job that has ended stays"

    again = session.run("again", **{"execution.state-recovery.path": path})
    until(lambda: session.client.get(f"/jobs/{again}/checkpoints")["latest"]["restored"])
    penstock(session, "cancel", again)
    until(lambda: session.state(again) == "CANCELED")
    (program,) = [one for one in session.client.get("/programs")["programs"] if one["jobs"] == [again]]
    until(lambda: session.client.get(f"/programs/{program['id']}")["status"] == "CANCELED")


def test_penstock_run_gives_a_program_to_a_session_and_ends_as_it_does(session: SessionRig) -> None:
    program, where = str(session.program), session.known.address.removeprefix("http://")
    result = CliRunner().invoke(main, ["run", "-m", where, program, "short", "ends", "-"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("program short in ")
    assert "after short" in lines
    assert any(line.startswith("Job Runtime: ") for line in lines)
    result = CliRunner().invoke(main, ["run", "-m", where, program, "fails", "raise", "-"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "ValueError: no job here")
    assert '/program.py", line ' in result.output.splitlines()[2], "a traceback begins in the program"
    result = CliRunner().invoke(main, ["run", "-d", "-m", where, program, "fails", "raise", "-"])
    assert result.exit_code == 1
    assert "the program ended with 1 before it began a job" in result.output
    result = CliRunner().invoke(main, ["session", "list", "--json"])
    assert [(one["name"], one["rest"]) for one in json.loads(result.output)] == [("tested", session.known.address)]


def test_flinks_jars_are_programs(session: SessionRig, tmp_path: Path) -> None:
    client, content = session.client, session.program.read_bytes()
    uploaded = client.upload("/jars/upload", "jarfile", "job.py", content)
    assert uploaded["status"] == "success"
    jar = uploaded["filename"]
    (file,) = client.get("/jars")["files"]
    assert (file["id"], file["name"], file["entry"]) == (jar, "job.py", [{"name": "__main__", "description": None}])
    how = {"programArgsList": ["jar", "goes on", "-"], "parallelism": 2}
    plan = client.request("POST", f"/jars/{jar}/plan", how)["plan"]
    assert (plan["name"], plan["type"]) == ("jar", "STREAMING")
    source, keyed, *_ = plan["nodes"]
    assert (source["parallelism"], keyed["parallelism"], source["inputs"]) == (1, 2, [])
    (edge,) = keyed["inputs"]
    assert (edge["id"], edge["exchange"]) == (source["id"], "pipelined_bounded")
    assert "Keyed Sum" in " ".join(node["description"] for node in plan["nodes"])
    assert all(node["job_vertex_id"] == node["id"] for node in plan["nodes"]), "Flink's page needs it"
    job = client.request("POST", f"/jars/{jar}/run", how)["jobid"]
    running = client.get(f"/jobs/{job}/plan")["plan"]
    assert [{**node, "job_vertex_id": node["id"]} for node in running["nodes"]] == plan["nodes"], "it is the same plan"
    assert client.get(f"/jobs/{job}")["name"] == "jar"
    assert client.get(f"/jobs/{job}/config")["execution-config"]["job-parallelism"] == 2
    client.request("DELETE", f"/jars/{jar}")
    with pytest.raises(OperationError, match="was uploaded"):
        client.request("POST", f"/jars/{jar}/run", how)
    for name, data, reason in [
        ("job.py", b"def (", "no Python program"),
        ("job.jar", content, "is a jar"),
        ("../job.txt", content, "a .py or .zip file"),
        ("job.zip", b"PK", "no archive"),
    ]:
        with pytest.raises(OperationError, match=reason):
            client.upload("/jars/upload", "jarfile", name, data)
    (program,) = [one["id"] for one in client.get("/programs")["programs"] if one["jobs"] == [job]]
    client.request("DELETE", f"/programs/{program}")
    until(lambda: client.get(f"/programs/{program}")["status"] == "CANCELED")


def test_a_token_is_needed_for_what_reveals_or_changes(session: SessionRig) -> None:
    url = session.known.address
    nobody = RestClient(Address(url))
    for method, path in [
        ("GET", "/jars"),
        ("POST", "/jars/upload"),
        ("POST", "/jars/x/run"),
        ("GET", "/programs"),
        ("DELETE", "/cluster"),
        ("GET", "/jobmanager/log"),
    ]:
        with pytest.raises(OperationError, match="needs a token"):
            nobody.request(method, path)
    with urlopen(Request(url + "/config"), timeout=30) as response:
        assert json.load(response)["features"]["web-submit"] is True
    told = Path(os.environ["HOME"]) / ".penstock" / "sessions" / "tested.json"
    assert told.stat().st_mode & 0o777 == 0o600


def test_a_program_cannot_set_what_is_the_sessions(session: SessionRig) -> None:
    with pytest.raises(OperationError, match="an option of the session"):
        session.submit("x", **{"high-availability.type": "FILE"})


def test_a_program_without_a_job_ends_with_its_code(session: SessionRig) -> None:
    program = session.submit("none", "nothing")
    printed: list[str] = []
    assert program.follow(printed.append) == 0
    assert "program none" in "".join(printed)


def test_a_name_is_taken_once(session: SessionRig) -> None:
    result = CliRunner().invoke(main, ["session", "start", "-d", "-t", "local", "--name", "tested"])
    assert result.exit_code == 1
    assert f"a session 'tested' runs at {session.known.address}" in result.output
