"""The history server: what it answers, what it skips, keeps, forgets and deletes."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.spark.programs import wait_until
from tests.server.history.test_archives import archived, fail
from tests.simulation.fresh_seeds import fresh_seeds

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.server.history.archive import Directory, Retention
from penstock.server.history.server import Archives, HistoryServer


def job_id(number: int) -> str:
    return f"{number:032x}"


def write(directory: Path, number: int, written_ms: int, state: str = "FINISHED") -> Path:
    """Write the archive of a job, as Flink or Penstock would."""
    jid = job_id(number)
    entry = {"jid": jid, "name": f"job {number}", "state": state, "start-time": number}
    answers = {"/jobs/overview": {"jobs": [entry]}, f"/jobs/{jid}": {"jid": jid, "state": state}}
    content = {"archive": [{"path": path, "json": json.dumps(answer)} for path, answer in answers.items()]}
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / jid
    path.write_text(json.dumps(content))
    os.utime(path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))
    return path


def write_application(directory: Path, number: int, jobs: list[int], written_ms: int) -> None:
    """Write the archive of an application as Flink 2.3 does, with its jobs."""
    below = directory / job_id(999) / "applications" / job_id(number)
    overview = {"applications": [{"id": job_id(number), "name": "app", "status": "FINISHED", "start-time": number}]}
    content = {"archive": [{"path": "/applications/overview", "json": json.dumps(overview)}]}
    for job in jobs:
        write(below / "jobs", job, written_ms)
    summary = below / "application-summary"
    summary.write_text(json.dumps(content))
    os.utime(summary, ns=(written_ms * 1_000_000, written_ms * 1_000_000))


class Histories:
    """Archives over one directory, with a clock of the test."""

    def __init__(self, directory: Path, cache: Path, **more: Any) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self.now_s = 1_000.0
        self.archives = Archives([Directory(str(directory))], cache, now=lambda: self.now_s, **more)

    def look(self) -> list[str]:
        """The ids of the jobs after a look."""
        self.archives.refresh()
        return [entry["jid"] for entry in self.archives.overviews("job")]


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


@pytest.fixture
def logged() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("penstock.history")
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_job_is_shown_after_its_end_as_the_live_server_showed_it(tmp_path: Path) -> None:
    failed_id = str(fail(tmp_path, "STREAMING").get_job_id())
    answers = archived(tmp_path, failed_id)
    (listed,) = json.loads(answers.pop("/jobs/overview"))["jobs"]
    options = {"historyserver.archive.fs.dir": str(tmp_path / "archive"), "historyserver.web.port": "0"}
    with HistoryServer(Configuration.from_dict(options)) as server:
        wait_until(lambda: get(f"{server.url}/jobs")[1]["jobs"], "the job")
        for path_of_answer, text in answers.items():
            assert get(f"{server.url}{path_of_answer}") == (200, json.loads(text)), path_of_answer
            assert get(f"{server.url}/v1{path_of_answer}") == (200, json.loads(text)), path_of_answer
        details = json.loads(answers[f"/jobs/{failed_id}"])
        assert details["last-failure"] > 0
        own = {name: details[name] for name in ("restarts", "last-failure")}
        assert get(f"{server.url}/jobs/overview") == (200, {"jobs": [listed | own]})
        overview = get(f"{server.url}/overview")[1]
        assert (overview["jobs-failed"], overview["jobs-running"], overview["taskmanagers"]) == (1, 0, 0)
        features = get(f"{server.url}/config")[1]["features"]
        assert features == {"web-submit": False, "web-cancel": False, "web-rescale": False, "web-history": True}
        assert get(f"{server.url}/taskmanagers") == (200, {"taskmanagers": []})
        code, answer = get(f"{server.url}/jobs/{job_id(7)}")
        assert (code, "no archive of it was read" in answer["errors"][0]) == (404, True)
        code, answer = get(f"{server.url}/jobs/{failed_id}/checkpoints/details/77")
        assert (code, "only a running job answers that" in answer["errors"][0]) == (404, True)
        request = urllib.request.Request(f"{server.url}/jobs/{failed_id}", method="PATCH")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == 404
        with urllib.request.urlopen(server.url, timeout=30) as page:
            assert b"<title>" in page.read()


def test_a_file_that_is_no_archive_is_skipped_until_it_is_one(tmp_path: Path, logged: Lines) -> None:
    directory = tmp_path / "archive"
    whole = write(directory, 1, 1_000).read_bytes()
    broken = {2: whole[: len(whole) // 2], 3: b"[]", 4: b"\xff\xfe", 5: whole}
    for number, content in broken.items():
        (directory / job_id(number)).write_bytes(content)
    (directory / "notes.txt").write_text("not looked at")
    histories = Histories(directory, tmp_path / "cache")
    assert histories.look() == [job_id(1)]
    assert histories.look() == [job_id(1)]
    for number in broken:
        assert logged.text.count(f"{job_id(number)} is skipped, and is tried again") == 1
    assert f"the job {job_id(5)} is not in its /jobs/overview" in logged.text
    assert "notes.txt" not in logged.text
    write(directory, 2, 2_000)
    assert histories.look() == [job_id(2), job_id(1)]


def test_the_oldest_archives_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    for number in range(1, 6):
        write(directory, number, number * 1_000)
    (directory / "notes.txt").write_text("not an archive")
    write_application(directory, 70, [71, 72], 1_000)
    write_application(directory, 80, [81], 2_000)
    (directory / job_id(999) / "applications" / job_id(70) / "own").write_text("someone's")
    histories = Histories(directory, tmp_path / "cache", retention=Retention(2, 1))
    assert set(histories.look()) == {job_id(4), job_id(5), job_id(81)}
    assert [entry["id"] for entry in histories.archives.overviews("application")] == [job_id(80)]
    left = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    applications = f"{job_id(999)}/applications"
    assert left == {
        job_id(4),
        job_id(5),
        "notes.txt",
        f"{applications}/{job_id(70)}/own",
        f"{applications}/{job_id(80)}/application-summary",
        f"{applications}/{job_id(80)}/jobs/{job_id(81)}",
    }


def test_an_application_and_its_jobs_are_answered(tmp_path: Path) -> None:
    write_application(tmp_path / "archive", 70, [71], 1_000)
    histories = Histories(tmp_path / "archive", tmp_path / "cache")
    assert histories.look() == [job_id(71)]
    answer = histories.archives.find_answer("job", job_id(71), f"/jobs/{job_id(71)}")
    assert answer is not None
    assert json.loads(answer)["state"] == "FINISHED"
    assert histories.archives.find_answer("job", job_id(71), "/jobs/other") is None
    with pytest.raises(KeyError):
        histories.archives.find_answer("job", job_id(70), "/jobs/overview")


def test_random_histories(tmp_path: Path) -> None:
    """Archives are written, written again, damaged and deleted between looks, beside a plain model of what is shown."""
    for seed in fresh_seeds():
        print(f"seed {seed}")
        check_history(tmp_path / str(seed), random.Random(seed))


def check_history(directory: Path, chance: random.Random) -> None:
    retention = Retention(chance.choice([-1, 1, 3]), -1, chance.choice([None, 50_000]))
    forgets = chance.random() < 0.5
    of_jobs: Any = frozenset({"job"} if forgets else ())
    (directory / "archive").mkdir(parents=True)
    histories = Histories(directory / "archive", directory / "cache", retention=retention, forgets=of_jobs)
    #: by number: when it was written, its state, and whether it can be read; and what is shown
    files: dict[int, tuple[int, str, bool]] = {}
    shown: dict[str, str] = {}
    now_ms = 1_000_000
    for _ in range(40):
        now_ms += chance.randint(1, 20_000)
        number = chance.randrange(6)
        path = directory / "archive" / job_id(number)
        step = chance.randrange(4)
        if step < 2:
            state = chance.choice(["FINISHED", "FAILED", "CANCELED"])
            write(directory / "archive", number, now_ms, state)
            files[number] = (now_ms, state, True)
            if chance.random() < 0.2:
                path.write_text(path.read_text()[:-1])
                os.utime(path, ns=(now_ms * 1_000_000, now_ms * 1_000_000))
                files[number] = (now_ms, state, False)
        elif step == 2 and number in files:
            path.unlink()
            del files[number]
        if chance.random() < 0.5:
            continue
        histories.now_s = now_ms / 1000
        newest = sorted(files, key=lambda n: (-files[n][0], job_id(n)))
        kept = newest if retention.jobs_max < 0 else newest[: retention.jobs_max]
        if retention.age_ms_max is not None:
            kept = [n for n in kept if now_ms - files[n][0] < retention.age_ms_max]
        for n in set(files) - set(kept):
            del files[n]
            shown.pop(job_id(n), None)
        if forgets:
            shown = {jid: state for jid, state in shown.items() if int(jid, 16) in files}
        shown |= {job_id(n): state for n, (_, state, is_whole) in files.items() if is_whole}
        histories.archives.refresh()
        assert {entry["jid"]: entry["state"] for entry in histories.archives.overviews("job")} == shown
        assert {path.name for path in (directory / "archive").iterdir()} == set(map(job_id, files))
        copies = list((directory / "cache").iterdir())
        assert len(copies) == len(shown), "copies of what is not shown are left"


def test_a_directory_that_cannot_be_listed_is_asked_again(
    tmp_path: Path, logged: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "archive", 1, 1_000)
    histories = Histories(tmp_path / "archive", tmp_path / "cache")
    assert histories.look() == [job_id(1)]
    with monkeypatch.context() as broken:

        def refuse_listing(_: Directory) -> Any:
            raise PermissionError("not yours")

        broken.setattr(Directory, "listing", refuse_listing)
        assert histories.look() == [job_id(1)]
        assert histories.look() == [job_id(1)]
    assert logged.text.count("cannot be listed, and is tried again: not yours") == 1
    write(tmp_path / "archive", 2, 2_000)
    assert histories.look() == [job_id(2), job_id(1)]


def test_settings_that_are_wrong_are_named(tmp_path: Path) -> None:
    def make(**options: str) -> None:
        given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        HistoryServer(Configuration.from_dict(given))

    with pytest.raises(ConfigurationError, match=r"^historyserver\.archive\.fs\.dir is not set: .* or give --dir$"):
        make()
    with pytest.raises(ConfigurationError, match=r"^historyserver\.archive\.fs\.dir: memory://x is in the memory"):
        make(historyserver__archive__fs__dir="memory://x")
    with pytest.raises(ConfigurationError, match=r"historyserver\.web\.address") as unsafe:
        make(historyserver__archive__fs__dir=str(tmp_path), historyserver__web__address="0.0.0.0")
    assert "rest.bind-address" not in str(unsafe.value)
    with pytest.raises(ConfigurationError, match="a number from 1 on, or -1 for no limit"):
        make(historyserver__archive__fs__dir=str(tmp_path), historyserver__archive__retained_jobs="0")


def test_the_command_serves_until_it_gets_a_signal(tmp_path: Path) -> None:
    write(tmp_path, 1, 1_000)
    command = [sys.executable, "-m", "penstock.cli.main", "history", "--dir", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"History server at (http://127\.0\.0\.1:\d+)\n", line)
        assert match is not None, line
        wait_until(lambda: get(f"{match[1]}/jobs")[1]["jobs"], "the job")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
