"""Lines that several threads print at the same time stay whole, in a process as `penstock run` starts it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from penstock.base.durable_files import keep_lines_whole, print_lines

keep_lines_whole()

def report():
    for _ in range(500):
        print_lines("a report\\n")

reporter = threading.Thread(target=report)
reporter.start()
for number in range(5_000):
    print("the", "program", "prints", number)
reporter.join()
print("begun", end="")
print_lines("a report\\n")
print(", ended")
"""


def test_lines_of_two_threads_stay_whole() -> None:
    output = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    lines = output.splitlines()
    assert lines.count("a report") == 501
    assert [line for line in lines if line != "a report"] == [
        *(f"the program prints {number}" for number in range(5_000)),
        "begun, ended",
    ]
    assert lines[-2:] == ["a report", "begun, ended"]
