"""The server's own process: its threads and the tail of its log."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from penstock.base.secrets import hide
from penstock.drivers.driver_log import DRIVER, LastLines
from penstock.drivers.listener import KEEPS
from penstock.drivers.log_forms import build_formatter
from penstock.drivers.log_settings import LogSettings
from penstock.drivers.program_output import OUTPUT_VARIABLE, end_of_file
from penstock.drivers.questions import FileText
from penstock.drivers.stacks import threads

LOG_NAME: Final = "penstock.log"


class OwnProcess:
    """This process: its threads, and the tail of what Penstock logs in it.

    Args:
        settings: the format of the log lines.
    """

    def __init__(self, settings: LogSettings) -> None:
        self.tail = LastLines()
        self.tail.set_name(f"{KEEPS}rest")
        self.tail.setFormatter(build_formatter(settings, DRIVER))

    def listen(self) -> None:
        """Start to keep log lines."""
        logging.getLogger("penstock").addHandler(self.tail)

    def forget(self) -> None:
        """Stop keeping log lines."""
        logging.getLogger("penstock").removeHandler(self.tail)

    def thread_dump(self) -> list[tuple[str, str]]:
        """Return the name and the stack of each thread."""
        return list(threads().stacks)

    def logs(self) -> list[tuple[str, int, int]]:
        """Return the only log, which is kept in memory."""
        return [(LOG_NAME, len(self.log().encode()), self.tail.written_ms)]

    def log(self) -> str:
        """Return the log's text. Secrets of jobs that began after a line was logged are hidden as well."""
        return hide(self.tail.text()) or "nothing was logged yet\n"

    def stdout(self) -> str:
        """Return the process's output, if its launcher said where that goes."""
        path = os.environ.get(OUTPUT_VARIABLE)
        if path is not None and isinstance(output := end_of_file(Path(path)), FileText):
            return output.data.decode("utf-8", "replace")
        return "The output of this process is not kept: it is where the program was started.\n"
