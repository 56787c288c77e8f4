"""What the process of the server says of itself: its threads, and the last of its log."""

from __future__ import annotations

import logging
from typing import Final

from penstock.drivers.driver_log import LastLines
from penstock.drivers.listener import KEEPS
from penstock.drivers.stacks import threads

LOG_NAME: Final = "penstock.log"
_FORM: Final = "%(asctime)s %(levelname)-7s %(name)s [%(threadName)s] - %(message)s"


class OwnProcess:
    """This process: its threads, and the last of what Penstock has logged in it."""

    def __init__(self) -> None:
        self.tail = LastLines()
        self.tail.set_name(f"{KEEPS}rest")
        self.tail.setFormatter(logging.Formatter(_FORM))

    def listen(self) -> None:
        """Begin to keep what is logged."""
        logging.getLogger("penstock").addHandler(self.tail)

    def forget(self) -> None:
        """Keep no more of it."""
        logging.getLogger("penstock").removeHandler(self.tail)

    def thread_dump(self) -> list[tuple[str, str]]:
        """Where each thread is."""
        return list(threads().stacks)

    def logs(self) -> list[tuple[str, int, int]]:
        """The one log, kept in memory."""
        return [(LOG_NAME, len(self.log().encode()), self.tail.written_ms)]

    def log(self) -> str:
        """Its text."""
        return self.tail.text() or "nothing was logged yet\n"

    def stdout(self) -> str:
        """Not kept: it goes where the program's output goes."""
        return "The output of this process is not kept: it is where the program was started.\n"
