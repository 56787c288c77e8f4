"""Writes to the standard output that keep the lines of different threads apart.

`print` writes its arguments and the line end one at a time. Between two of them, a sink or a job report may print from
another thread.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper


def keep_lines_whole() -> None:
    """Make the standard output buffer incomplete lines. The process of a user's program calls this at startup."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def print_lines(text: str) -> None:
    """Write whole lines at once, ahead of an incomplete line of another thread that is still buffered."""
    output = sys.stdout
    if type(output) is not TextIOWrapper or not output.line_buffering or output.write_through:
        output.write(text)
        output.flush()
        return
    with open(output.fileno(), "wb", closefd=False) as file:
        file.write(text.encode(output.encoding, output.errors or "strict"))
