"""What a container may use: the smallest limit of the process's groups, of both versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.drivers.inspection import cpu_cores_max, memory_bytes_max

GB = 1 << 30
UNLIMITED = "9223372036854771712"


def limits(directory: Path, membership: str, files: Mapping[str, str]) -> tuple[int, int | None]:
    """Memory and cores, when these files are there."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (directory / "membership").write_text(membership)
    return (
        memory_bytes_max(directory, directory / "membership"),
        cpu_cores_max(directory, directory / "membership"),
    )


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        pytest.param("0::/", {"memory.max": f"{GB}", "cpu.max": "150000 100000"}, (GB, 2), id="container, version 2"),
        pytest.param("0::/", {"memory.max": "max", "cpu.max": "max 100000"}, (0, None), id="version 2 without limits"),
        pytest.param(
            "0::/pods/one\n",
            {"pods/memory.max": f"{GB}", "pods/one/memory.max": f"{4 * GB}", "pods/one/cpu.max": "max 100000"},
            (GB, None),
            id="a group further up allows less",
        ),
        pytest.param(
            "4:memory:/a\n1:cpu,cpuacct:/a\n",
            {
                "memory/a/memory.limit_in_bytes": f"{2 * GB}",
                "memory/memory.limit_in_bytes": UNLIMITED,
                "cpu/a/cpu.cfs_quota_us": "50000",
                "cpu/a/cpu.cfs_period_us": "100000",
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
            },
            (2 * GB, 1),
            id="version 1",
        ),
        pytest.param(
            "4:memory:/docker/abc\n", {"memory/memory.limit_in_bytes": f"{GB}"}, (GB, None), id="version 1, own root"
        ),
        pytest.param("", {}, (0, None), id="no control groups"),
    ],
)
def test_limits(tmp_path: Path, membership: str, files: Mapping[str, str], expected: tuple[int, int | None]) -> None:
    assert limits(tmp_path, membership, files) == expected
