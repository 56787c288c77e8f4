"""Fifty secrets in options of every kind, and no outlet that shows one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.server.rest.rig import JOB, Handle, a_view, serving

from penstock.base.secrets import HIDDEN, hide, hide_json, known_secrets, remember, shown, values_to_hide
from penstock.cli.sql_shell.statements import Statement, error_text
from penstock.server.rest.messages.jobs import failure_cause
from penstock.sql.parser import SqlParserError

#: Options that hold secrets, each with the secret within its value; `{}` is the place of the secret.
PLANTED = {
    "db.password": "{}",
    "s3.access-key": "{}",
    "s3.secret-key": "{}",
    "fs.azure.account.key.data": "{}",
    "properties.sasl.jaas.config": 'org.apache.kafka.PlainLoginModule required username="me" password="{}";',
    "sasl.oauthbearer.client.secret": "{}",
    "influx.apikey": "{}",
    "pulsar.auth-params": "token:{}",
    "schema-registry.basic-auth.user-info": "me:{}",
    "rest.http-headers": "Authorization: Bearer {}",
    "high-availability.zookeeper.client.authorization": "digest:me:{}",
    "url.of.database": "postgresql://me:{}@db:5432/orders",
    "url.of.jdbc": "jdbc:postgresql://db/orders?user=me&password={}",
    "dsn.of.database": "host=db user=me password='{}'",
    "broker": "amqp://me:{}@mq/vhost",
}
AWKWARD = ('sp"ace and \\ back', "per%cent/slash", "ümläut-Passwort", "it's", "a+b&c=d", "tab\tin", "new\nline")


def planted() -> tuple[dict[str, str], list[str]]:
    """Fifty options and their secrets: plain ones under every form of value, awkward ones under plain keys."""
    secrets = [f"SENTINEL-{number:02d}-pw" for number in range(50 - len(AWKWARD))]
    forms = list(PLANTED.items())
    options = {}
    for number, secret in enumerate(secrets):
        key, value = forms[number % len(forms)]
        options[f"{key}.{number}"] = value.format(secret)
    for number, secret in enumerate(AWKWARD):
        options[f"store-{number}.password"] = f"SENTINEL-{secret}"
        secrets.append(f"SENTINEL-{secret}")
    assert len(options) == len(secrets) == 50
    return options, secrets


def forms_of(secret: str) -> set[str]:
    return {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}


def seen_in(text: str, secrets: list[str]) -> list[str]:
    return [secret for secret in secrets if any(form in text for form in forms_of(secret))]


def test_all_fifty_are_known_and_hidden() -> None:
    """S11: as they are, in URLs, in JSON, in lines of their own."""
    options, secrets = planted()
    assert seen_in(json.dumps(shown(options)), secrets) == []
    remember(options)
    for secret in secrets:
        for text in (
            f"cannot log in with {secret}: refused",
            json.dumps({"a": [secret]}),
            quote(secret, safe=""),
            repr(secret),
        ):
            assert seen_in(hide(text), [secret]) == [], text
    body = json.dumps({"failure": " ".join(secrets), **dict.fromkeys(secrets, 1)})
    assert json.loads(hide_json(body)).keys() == json.loads(body).keys(), "fields keep their names"


@pytest.mark.parametrize(
    "text",
    [
        "cannot connect to postgresql://me:SENTINEL@db/orders",
        "bad URL postgresql:/me:SENTINEL@db/orders",
        "bad URL 'me:SENTINEL@db'",
        "jdbc:postgresql://db/o?user=me&password=SENTINEL&ssl=true",
        'login failed: PlainLoginModule required username="me" password="SENTINEL";',
        "SQL: CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'SENTINEL')",
        "aws_secret_access_key=SENTINEL region=x",
        "https://SENTINEL-user:SENTINEL@host:1/x?y=z@w",
    ],
)
def test_what_looks_like_a_credential_is_hidden_though_nobody_has_named_it(text: str) -> None:
    """S11."""
    hidden = hide(text)
    assert "SENTINEL" not in hidden.replace("SENTINEL-user", "")
    assert HIDDEN in hidden


@pytest.mark.parametrize(
    "text",
    [
        "no route to host:8080 for user@example.com",
        "12:30:45 penstock words: running",
        "http://localhost:8081/jobs/1/vertices/a@b",
        "parallelism.default=2, pipeline.name=words",
        "operator 'a: b' (1/2) at worker-1@host",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert hide(text) == text


def test_words_and_places_under_sensitive_keys_are_no_secrets() -> None:
    """Else `true`, or a directory, would be hidden in every line."""
    options = {
        "security.delegation.tokens.enabled": "true",
        "penstock.rest.token-dir": "/home/me/tokens",
        "a.token": "abc",
    }
    assert values_to_hide(options) == ()


def test_an_error_of_an_operation_shows_none_in_its_java_form_either() -> None:
    """S11: Flink's client gets the error as base64 of a Java object."""
    known_secrets.add(["SENTINEL-pw"])
    cause = failure_cause(OSError("refused: SENTINEL-pw"))
    assert "SENTINEL" not in cause.stack_trace
    assert b"SENTINEL" not in cause.serialized_throwable


def test_no_answer_of_rest_shows_one() -> None:
    """S11: in names, failures, accumulators and what is not found."""
    options, secrets = planted()
    with serving(Handle(a_view(), f"job of {secrets[0]}"), configuration=options) as client:
        for path in (
            "/jobs/overview",
            f"/jobs/{JOB}",
            f"/jobs/{JOB}/config",
            "/jobmanager/config",
            "/jobmanager/environment",
            f"/jobs/{JOB}/exceptions",
            f"/jobs/{JOB}/plan",
            f"/nowhere/{secrets[1]}",
            "/jobmanager/log",
        ):
            answer = client.get(path)
            assert seen_in(answer.body.decode(), secrets) == [], path


def test_the_sql_shell_shows_none_in_an_error() -> None:
    """S11: the parser quotes the line that it cannot read, and a verbose error has a traceback."""
    text = "CREATE TABLE t (a INT) WITH ('password' = 'SENTINEL-pw', 'connector' = nothing)"
    statement = Statement(text, 1, 1)
    error = SqlParserError("it does not parse", 1, text.index("nothing") + 1)
    told = error_text(error, statement)
    assert "SENTINEL" not in told
    assert f"'password' = '{HIDDEN}'" in told
    failure = OSError("no route to postgresql://me:SENTINEL-pw@db/x")
    assert "SENTINEL" not in error_text(failure, statement, verbose=True)


PROGRAM = """
import json, logging, pathlib, sys, urllib.request
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
options, secrets = json.loads(pathlib.Path(sys.argv[1], "planted").read_text())
logs = {"penstock.logs.dir": sys.argv[1] + "/logs", "penstock.events.file": sys.argv[1] + "/events"}
conf = Configuration.from_dict({"execution.target": sys.argv[2], "rest.port": "0", **logs, **options})
env = StreamExecutionEnvironment.get_execution_environment(conf)
def fail(n):
    print("printed", secrets[3])
    raise ValueError("cannot log in with any of: " + " | ".join(secrets))
env.from_collection([1]).map(fail).print()
job = env.execute_async("fails")
try:
    job.get_job_execution_result().result(60)
except BaseException:
    pass
logging.getLogger("penstock.user").warning("still: %s", secrets)
from penstock.server.rest.server import servers
for path in ("exceptions", "execution-result", "config", "plan", "checkpoints", "accumulators"):
    print(urllib.request.urlopen(f"{servers[0].url}/jobs/{job.get_job_id()}/{path}").read().decode())
print(urllib.request.urlopen(f"{servers[0].url}/jobmanager/log").read().decode())
if sys.argv[2] == "spark":
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            print(path.read_text(errors="replace"))
        except OSError:
            pass  # a process that has ended meanwhile
job.get_job_execution_result().result()
"""


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.slow)])
def test_no_outlet_of_a_job_that_fails_shows_one(target: str, tmp_path: Path) -> None:
    """S11: stderr, its last traceback, the driver's log, events, REST, and the command lines of the processes."""
    options, secrets = planted()
    if target == "spark":
        options |= {"spark.hadoop.fs.s3a.secret.key": secrets[0], "spark.some.url": f"https://me:{secrets[1]}@host/x"}
    (tmp_path / "planted").write_text(json.dumps([options, secrets]))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(tmp_path), target]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, env=dict(os.environ), check=False)
    assert ended.returncode == 1, ended.stderr[-3000:]
    # What a function of the program prints is its own, and comes on either of them.
    printed, stderr = (
        "\n".join(line for line in text.splitlines() if not line.startswith("printed"))
        for text in (ended.stdout, ended.stderr)
    )
    assert seen_in(stderr, secrets) == []
    assert f"cannot log in with any of: {HIDDEN} | {HIDDEN}" in ended.stderr
    assert seen_in(printed, secrets) == []
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("planted", "program.py")]
    assert {path.name for path in files} >= {"driver.log", "events"}
    for path in files:
        if path.suffix != ".out":  # what the program itself prints is its own; REST hides in it
            assert seen_in(path.read_text(errors="replace"), secrets) == [], path
