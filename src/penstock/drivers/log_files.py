"""The log and output files of a process: limited in size, and readable by name."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from penstock.base.secrets import hide
from penstock.drivers.log_forms import build_formatter
from penstock.drivers.log_output import OutputFile
from penstock.drivers.log_settings import LogSettings
from penstock.drivers.questions import FILE_BYTES_MAX, Answer, FileText, LogFile, LogFiles, Refused
from penstock.drivers.worker_directories import WorkerDirectories, WorkerDirectory

#: The name prefix of directories that are deleted at the end of their process.
LOGS_PREFIX: Final = "penstock-logs-"


class ProcessLogs:
    """The log files of one process.

    `<penstock.logs.dir>/<job>/<process>.log`, with `.1` and so on for older files, and `.out` for printed output.
    Without the option, they are in a temporary directory until the process ends.

    Args:
        settings: the options of the logs.
        process: the prefix of the file names.
    """

    def __init__(self, settings: LogSettings, process: str) -> None:
        self._own: WorkerDirectory | None = None
        if settings.directory is None:
            self._own = WorkerDirectories(None, settings.job_id, LOGS_PREFIX).make()
            self.directory = self._own.path
        else:
            self.directory = Path(settings.directory) / settings.job_id
            self.directory.mkdir(parents=True, exist_ok=True)
        self._main = f"{process}.log"
        self.handler: logging.Handler = RotatingFileHandler(
            self.directory / self._main,
            maxBytes=settings.file_bytes_max,
            backupCount=settings.files_max - 1,
            encoding="utf-8",
            errors="backslashreplace",
        )
        self.handler.setFormatter(build_formatter(settings, process))
        self.handler.setLevel(settings.level)
        self.printed = OutputFile(self.directory / f"{process}.out", settings.output_bytes_max)

    def _files(self) -> list[Path]:
        paths = [path for path in self.directory.iterdir() if path.name.startswith(self._main)]
        return sorted(paths, key=lambda path: (len(path.name), path.name))

    def list(self) -> Answer:
        """List the log's files, newest first."""
        files = []
        for path in self._files():
            about = path.stat()
            files.append(LogFile(path.name, about.st_size, about.st_mtime_ns // 1_000_000))
        return LogFiles(tuple(files))

    def read(self, name: str) -> Answer:
        """Return the end of a log file; of the newest one if the name is empty."""
        for path in self._files():
            if path.name == (name or self._main):
                return self._take_tail(path.read_bytes())
        return Refused(f"there is no log file {name!r}", is_unknown=True)

    def output(self) -> Answer:
        """Return the end of the printed output."""
        return self._take_tail(self.printed.read())

    def _take_tail(self, data: bytes) -> FileText:
        text = hide(data.decode(errors="replace")).encode()
        return FileText(text[-FILE_BYTES_MAX:], max(0, len(text) - FILE_BYTES_MAX))

    def close(self) -> None:
        """Close the files, and remove temporary ones."""
        self.handler.close()
        self.printed.close()
        if self._own is not None:
            self._own.remove()
