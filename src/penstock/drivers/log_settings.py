"""The options of logs, as sent to workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.secrets import known_secrets, values_to_hide


@dataclass(frozen=True)
class LogSettings:
    """The log settings of the processes of one job.

    Attributes:
        job_id: the job.
        directory: where files remain after the job; None for files that are deleted at the end of their process.
        level: the minimum level of the lines that are kept.
        is_json: whether each line is a JSON object.
        file_bytes_max: the maximum size of a file.
        files_max: the number of newest files that a process keeps.
        output_bytes_max: the maximum size of the printed output that is kept.
        secrets: hidden in every line of each process that receives the settings.
    """

    job_id: str
    directory: str | None = None
    level: str = "INFO"
    is_json: bool = False
    file_bytes_max: int = 10 << 20
    files_max: int = 5
    output_bytes_max: int = 10 << 20
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known_secrets.add(self.secrets)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        known_secrets.add(self.secrets)

    @classmethod
    def of(cls, configuration: Configuration, job_id: str) -> LogSettings:
        """Read the options."""
        read = configuration.read
        return cls(
            job_id,
            read(options.LOGS_DIR),
            read(options.LOGS_LEVEL),
            read(options.LOGS_FORMAT) == "json",
            read(options.LOGS_FILE_BYTES_MAX),
            read(options.LOGS_FILES_MAX),
            read(options.LOGS_OUTPUT_BYTES_MAX),
            values_to_hide(configuration.to_dict()),
        )
