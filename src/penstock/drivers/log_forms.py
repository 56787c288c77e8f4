"""The formats of log lines: text or JSON objects, without the secrets that this process knows."""

from __future__ import annotations

import json
import logging
import time

from penstock.base.secrets import hide
from penstock.drivers.log_settings import LogSettings


class HidingForm(logging.Formatter):
    """A formatter that hides the secrets that this process knows."""

    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record))


class TextForm(HidingForm):
    """The format of Flink's logs."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-5s %(name)s [%(threadName)s] - %(message)s")


class JsonForm(logging.Formatter):
    """One JSON object per line: `time` (UTC), `level`, `logger`, `thread`, `job`, `process`, `message`, `exception`."""

    def __init__(self, settings: LogSettings, process: str) -> None:
        super().__init__()
        self._settings = settings
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "job": self._settings.job_id,
            "process": self._process,
            "message": hide(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = hide(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def build_formatter(settings: LogSettings, process: str) -> logging.Formatter:
    """Return the formatter for the settings."""
    return JsonForm(settings, process) if settings.is_json else TextForm()
