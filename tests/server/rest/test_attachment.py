"""How jobs come to the server: announced as they begin, kept while they run, in the lists after their end."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import urllib.request

import pytest
from tests.server.rest.rig import JOB, Handle, a_view, build_graph

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.server.attachment import Attachment
from penstock.server.rest.server import servers

PROGRAM = """
import json, sys, urllib.request
from penstock.base.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment

def run(name, **more):
    configuration = Configuration.from_dict({"execution.target": "local", "pipeline.name": name, **more})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1, 2, 3]).map(lambda n: n + 1).print()
    env.execute()

run("before")
assert not {"starlette", "uvicorn"} & set(sys.modules), "nothing is imported that nobody asked for"
run("asks", **{"rest.port": "0"})
run("after")
from penstock.server.rest.server import servers
(server,) = servers
with urllib.request.urlopen(server.url + "/jobs/overview") as response:
    jobs = json.load(response)["jobs"]
assert [(job["name"], job["state"]) for job in jobs] == [("asks", "FINISHED"), ("after", "FINISHED")], jobs
"""


def test_the_first_job_that_asks_starts_a_server_for_all_that_follow() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


STAYS = """
import sys
from penstock.base.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment

options = {"execution.target": "local", "rest.port": "0", "execution.shutdown-on-application-finish": "false"}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
env.from_collection([1, 2, 3]).map(lambda n: n + 1).print()
env.execute("ends")
from penstock.server.rest.server import servers
print("server", servers[0].url, flush=True)
if len(sys.argv) > 1:
    raise ValueError(sys.argv[1])
"""


@pytest.mark.parametrize("arguments", [[], ["the program fails"]])
def test_a_server_that_is_told_to_stays_after_its_last_job_until_it_is_ended(arguments: list[str]) -> None:
    """`execution.shutdown-on-application-finish: false`, by which a cancelled job can still be looked at."""
    command = [sys.executable, "-c", STAYS, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(line.split()[1] for line in process.stdout if line.startswith("server "))
        while "the program has ended, and the REST API goes on" not in asked(f"{url}/jobmanager/log"):
            time.sleep(0.05)
        overview = asked(f"{url}/jobs/overview")
        assert '"name":"ends"' in overview
        assert '"state":"FINISHED"' in overview
        with urllib.request.urlopen(urllib.request.Request(f"{url}/cluster", method="DELETE")):
            pass
        _, errors = process.communicate(timeout=150)
    assert process.returncode == len(arguments), errors
    assert ("the program fails" in errors) is bool(arguments)


def asked(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def test_jobs_that_run_already_are_known_to_who_looks_first_and_ended_ones_are_forgotten() -> None:
    attachment, running, ended = Attachment(), Handle(a_view()), Handle(a_view(job_id="d" * 32))
    for handle in (running, ended):
        assert handle.shown is not None
        attachment.attach(handle, build_graph(handle.shown), Configuration())  # type: ignore[arg-type]
    ended.outcome.cancel()
    assert [id(job.handle) for job in attachment.dispatcher().jobs()] == [id(running)]


def test_a_job_that_has_ended_just_now_is_forgotten_too() -> None:
    """Its result is there for the program before the attachment hears of it."""
    attachment, handle = Attachment(), Handle(a_view())
    known_at_end: list[int] = []
    handle.outcome.add_done_callback(lambda _: known_at_end.append(len(attachment.dispatcher().jobs())))
    assert handle.shown is not None
    attachment.attach(handle, build_graph(handle.shown), Configuration())  # type: ignore[arg-type]
    handle.outcome.cancel()
    assert known_at_end == [0]


@pytest.mark.parametrize("key", ["penstock.rest.token", "penstock.rest.reader-token"])
def test_a_token_that_the_server_of_the_process_does_not_ask_for_is_refused(key: str) -> None:
    """It would protect nothing: the first job has begun the server, which serves all of them."""
    attachment = Attachment()
    open_to_all = {"rest.port": "0"}
    attachment.prepare(Configuration.from_dict(open_to_all))
    server = servers[-1]
    try:
        attachment.prepare(Configuration.from_dict(open_to_all))
        with pytest.raises(ConfigurationError, match=f"{key} differs from that of the REST API of this process"):
            attachment.prepare(Configuration.from_dict({**open_to_all, key: "letmein"}))
    finally:
        servers.remove(server)
        server.stop()


def test_a_program_of_a_session_starts_no_server_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """The session serves its jobs, with its token."""
    attachment = Attachment()
    attachment.is_served_elsewhere()
    logging.getLogger("penstock").addHandler(caplog.handler)
    try:
        attachment.prepare(Configuration.from_dict({"rest.port": "0"}))
    finally:
        logging.getLogger("penstock").removeHandler(caplog.handler)
    assert attachment.find_job_page(JOB) is None
    assert "options of the session" in caplog.text
