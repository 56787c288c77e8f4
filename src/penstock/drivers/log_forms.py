"""Lines of a log: for people, or as JSON objects; never with a secret of the job's options."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence

from penstock.base.secrets import HIDDEN
from penstock.drivers.log_settings import LogSettings


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """The text with each secret hidden."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return text


class TextForm(logging.Formatter):
    """As Flink's logs look."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__("%(asctime)s %(levelname)-5s %(name)s [%(threadName)s] - %(message)s")
        self._secrets = settings.secrets

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record), self._secrets)


class JsonForm(logging.Formatter):
    """A JSON object a line: `time` (UTC), `level`, `logger`, `thread`, `job`, `process`, `message`, `exception`."""

    def __init__(self, settings: LogSettings, process: str) -> None:
        super().__init__()
        self._settings = settings
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        secrets = self._settings.secrets
        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "job": self._settings.job_id,
            "process": self._process,
            "message": without_secrets(record.getMessage(), secrets),
        }
        if record.exc_info:
            line["exception"] = without_secrets(self.formatException(record.exc_info), secrets)
        return json.dumps(line, ensure_ascii=False)


def form_of(settings: LogSettings, process: str) -> logging.Formatter:
    """The form that the settings ask for."""
    return JsonForm(settings, process) if settings.is_json else TextForm(settings)
