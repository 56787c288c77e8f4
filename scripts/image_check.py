"""Runs the steps of the Dockerfile in a chroot, for machines without a container engine: as root, on Debian.

    scripts/release && apt-get install debootstrap && python3 scripts/image_check.py

Makes a minimal Debian by debootstrap, in place of the base image, runs each step in it, and then the image's command as
the image's user: README's first program. Prints the sizes. Needs a package index and Debian's packages.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Step(NamedTuple):
    """An instruction, in capital letters, and its text on one line."""

    instruction: str
    text: str


def read_steps(dockerfile: str) -> list[Step]:
    """Return the instructions of a Dockerfile, without comments."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def set_variables(text: str) -> dict[str, str]:
    """Return what ENV or ARG sets."""
    return dict(word.split("=", 1) for word in shlex.split(text))


class Image:
    """A root directory in which steps are run.

    Args:
        root: the directory, with a minimal system.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        self.user = "0"
        self.folder = "/"
        self.command: list[str] = []
        self.arguments: list[str] = []

    def take(self, step: Step) -> None:
        """Carry out an instruction."""
        match step.instruction:
            case "RUN":
                # As what /bin/sh -c does in a container; variables of the build are in the environment.
                self.run(["/bin/sh", "-c", step.text])
            case "COPY":
                source, target = step.text.split()
                shutil.copytree(ROOT / source, self.root / target.lstrip("/"))
            case "ARG" | "ENV":
                for name, value in set_variables(step.text).items():
                    self.environment[name] = value.replace("${PATH}", self.environment["PATH"])
            case "USER":
                self.user = step.text
            case "WORKDIR":
                self.folder = step.text
            case "ENTRYPOINT":
                self.command = json.loads(step.text)
            case "CMD":
                self.arguments = json.loads(step.text)
            case "FROM" | "LABEL":
                pass
            case _:
                raise ValueError(f"the check does not know the instruction {step.instruction}")

    def run(self, command: Sequence[str], extra: Mapping[str, str] | None = None) -> str:
        """Run a command as the image's user in its folder; returns what it prints."""
        inner = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        full = ["chroot", f"--userspec={self.user}:{self.user}", str(self.root), "/bin/sh", "-c", inner]
        environment = {**self.environment, **(extra or {})}
        done = subprocess.run(full, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{done.stdout}\nfailed with {done.returncode}: {shlex.join(command)}")
        return done.stdout


def count_megabytes(root: Path) -> int:
    """Return the size of a tree without what is mounted there."""
    return int(subprocess.check_output(["du", "-smx", str(root)], text=True).split()[0])


def main() -> None:
    """Make the tree, run the steps, and run the command."""
    steps = read_steps((ROOT / "Dockerfile").read_text())
    release = re.fullmatch(r"debian:(\w+)-slim", steps[0].text)
    if steps[0].instruction != "FROM" or release is None:
        raise SystemExit("the first step is not FROM debian:RELEASE-slim")
    root = Path(tempfile.mkdtemp(prefix="penstock-image-"))
    root.chmod(0o755)  # the image's user is not this one
    mounted = []
    try:
        subprocess.run(["debootstrap", "--variant=minbase", release[1], str(root)], check=True, stdout=subprocess.PIPE)
        base_megabytes = count_megabytes(root)
        for folder in "proc", "dev":
            subprocess.run(["mount", "--rbind", f"/{folder}", str(root / folder)], check=True)
            mounted.append(root / folder)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        if bundle := os.environ.get("PIP_CERT"):  # a package index with a certificate of its own
            shutil.copy(bundle, root / "index.pem")
        image = Image(root)
        for name in ("PIP_INDEX_URL", "https_proxy", "http_proxy"):
            if name in os.environ:
                image.environment[name] = os.environ[name]
        if bundle:
            image.environment["PIP_CERT"] = "/index.pem"
        for step in steps:
            print(f"{step.instruction} {step.text[:100]}", flush=True)
            image.take(step)
        check(image, base_megabytes)
    finally:
        for folder in reversed(mounted):
            subprocess.run(["umount", "--recursive", "--lazy", str(folder)], check=False)
        if not any(os.path.ismount(folder) for folder in mounted):
            shutil.rmtree(root, ignore_errors=True)


def check(image: Image, base_megabytes: int) -> None:
    """Run the command as it would run in a container."""
    readme = (ROOT / "README.md").read_text()
    program = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    (image.root / "work/word_count.py").write_text(program)
    home = {"HOME": "/home/penstock"}
    print(image.run(["id", "-u"], home).strip(), "is the user")
    print(image.run([*image.command, "version"], home).strip())
    printed = image.run([*image.command, "run", "--target", "local", "word_count.py"], home)
    if "('be', 2)" not in printed:
        raise SystemExit(f"README's program printed something else:\n{printed}")
    total = count_megabytes(image.root)
    print(f"README's program ran; {total} MB, {base_megabytes} MB of them the minimal system")


if __name__ == "__main__":
    sys.exit(main())
