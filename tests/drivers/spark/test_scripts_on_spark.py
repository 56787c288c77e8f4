"""Programs that are run as scripts: what their `__main__` defines goes to workers and back, and into checkpoints."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

UNSENDABLE = """
import threading
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.split_reader import SplitQueue
from penstock.connectors.split_reader import PositionedReader
from penstock.runtime.connector import Boundedness, Source
from penstock.datastream import StreamExecutionEnvironment

class Part:
    def __init__(self):
        self.lock = threading.Lock()

class Parts(Source):
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context, restored):
        return SplitQueue(context, [Part()], restored)

    def create_reader(self, context):
        return Reader(context)

class Reader(PositionedReader):
    def read(self, split, max_records):
        return None

env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"execution.target": "local"}))
env.from_source(Parts(), WatermarkStrategy.no_watermarks(), "parts").print()
env.execute("parts")
"""


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=170, check=False, cwd=folder
    )


@pytest.mark.spark
def test_classes_of_a_script_cross_in_every_execution_mode_and_live_on_in_its_state(tmp_path: Path) -> None:
    """A2, H4: as those of a module do; a function is given instances of the very classes that it names."""
    done = run(str(Path(__file__).with_name("script_of_classes.py")), str(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "STREAMING 20",
        "BATCH 20",
        "MICRO_BATCH 20",
        "spark to local in STREAMING 40",
        "local to spark in STREAMING 40",
        "local to spark in MICRO_BATCH 40",
        "the state processor read 2",
    ]


def test_a_split_that_cannot_be_pickled_is_named_with_the_remedy(tmp_path: Path) -> None:
    """B1, G8: the job fails at once, for another attempt would meet the same."""
    program = tmp_path / "program.py"
    program.write_text(UNSENDABLE)
    done = run(str(program), folder=tmp_path)
    assert done.returncode != 0
    assert "a split of Parts cannot be pickled: cannot pickle '_thread.lock' object" in done.stderr
    assert "it is of class __main__.Part: keep only picklable values" in done.stderr
