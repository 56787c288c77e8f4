"""The output file of a program's process, if the process was started with one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.drivers.questions import FILE_BYTES_MAX, Answer, FileText, Refused

#: The environment variable with the path of that file.
OUTPUT_VARIABLE: Final = "PENSTOCK_OUTPUT_FILE"


def end_of_file(path: Path) -> Answer:
    """Return the content of a file; of a long file, the end."""
    try:
        with path.open("rb") as file:
            left_out = max(0, file.seek(0, 2) - FILE_BYTES_MAX)
            file.seek(left_out)
            return FileText(file.read(FILE_BYTES_MAX), left_out)
    except OSError as error:
        return Refused(f"{path} cannot be read: {error}", is_unknown=True)
