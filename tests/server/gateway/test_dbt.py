"""dbt's adapter, in an environment of its own: its tests of streaming jobs, where there is one.

`DBT_PYTHON` is the Python that has dbt and the adapter; without it, this environment has to have them. docs/dbt.md says
how to run all of the adapter's tests.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ADAPTER = ROOT / "integrations" / "dbt-penstock"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_streaming_jobs_of_dbt_keep_their_state() -> None:
    """What `dbt run` does with a job that is new, unchanged and changed, and after a gateway that was killed."""
    python = os.environ.get("DBT_PYTHON")
    if python is None:
        if importlib.util.find_spec("dbt") is None:
            pytest.skip("needs dbt: docs/dbt.md says how to install the adapter; DBT_PYTHON names its Python")
        python = sys.executable
    environment = {**os.environ, "PENSTOCK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")}
    command = [python, "-m", "pytest", "-q", "tests/test_texts.py", "tests/test_streaming_jobs.py"]
    run = subprocess.run(command, cwd=ADAPTER, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-5000:]
