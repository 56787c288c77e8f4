"""The image installs what a release has, with hashes, and does not run as root."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("image_check", ROOT / "scripts" / "image_check.py")
assert _spec is not None
assert _spec.loader is not None
image_check = importlib.util.module_from_spec(_spec)
sys.modules["image_check"] = image_check
_spec.loader.exec_module(image_check)

STEPS = image_check.read_steps((ROOT / "Dockerfile").read_text())
KNOWN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}


def last(instruction: str) -> str:
    return str([step.text for step in STEPS if step.instruction == instruction][-1])


def test_a_dockerfile_is_read_as_steps() -> None:
    text = '# a comment\nFROM a:1\nRUN one \\\n    && two\n\n# another\nCMD ["x"]\n'
    assert image_check.read_steps(text) == [("FROM", "a:1"), ("RUN", "one && two"), ("CMD", '["x"]')]


def test_the_image_does_not_run_as_root() -> None:
    """As a number, so that Kubernetes can see it (`runAsNonRoot`)."""
    assert re.fullmatch(r"[1-9]\d*", last("USER"))
    order = [step.instruction for step in STEPS]
    assert "RUN" not in order[order.index("USER") :]


def test_penstock_is_the_entry_point() -> None:
    """In the form without a shell, which would keep signals from it."""
    assert json.loads(last("ENTRYPOINT"))[-1] == "penstock"
    assert isinstance(json.loads(last("CMD")), list)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert "penstock" in scripts


def test_the_steps_follow_the_rules_of_images() -> None:
    assert {step.instruction for step in STEPS} <= KNOWN
    assert re.fullmatch(r"[a-z]+:(?!latest)[\w.-]+", last("FROM"))  # a release of the base image, not its newest
    runs = [step.text for step in STEPS if step.instruction == "RUN"]
    for run in runs:
        assert "sudo" not in run
        assert "||" not in run  # no step hides a failure
        if "apt-get install" in run:
            assert "--no-install-recommends" in run
            assert run.endswith("rm -rf /var/lib/apt/lists/*")
        for install in re.findall(r"pip install [^&]*", run):
            assert "--no-cache-dir" in install
            assert "--require-hashes" in install or "--no-deps" in install
    assert not [step for step in STEPS if re.search(r"(?i)secret|password|token", step.text)]


def test_only_files_of_a_release_are_sent_to_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    sources = [step.text.split()[0] for step in STEPS if step.instruction == "COPY"]
    assert sources == [line.removeprefix("!") for line in lines[1:]]


@pytest.mark.parametrize("name", ["requirements.txt", "sbom.cdx.json"])
def test_what_the_image_installs_is_what_a_release_writes(name: str) -> None:
    assert f"/tmp/dist/{name}" in (ROOT / "Dockerfile").read_text()
    assert f"dist/{name}" in (ROOT / "scripts" / "release").read_text()
