"""Lines on the standard output that no other thread's line ends up in.

`print` hands its arguments and its line end over one by one. While a program's thread is between two of them, a sink or
a report of a job may print from another.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper


def keep_lines_whole() -> None:
    """Make the standard output hold back a line that is not at its end. A program's process does this as it begins."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def print_lines(text: str) -> None:
    """Write whole lines at once, before a line that another thread has begun, where that is held back."""
    output = sys.stdout
    if type(output) is not TextIOWrapper or not output.line_buffering or output.write_through:
        output.write(text)
        output.flush()
        return
    with open(output.fileno(), "wb", closefd=False) as file:
        file.write(text.encode(output.encoding, output.errors or "strict"))
