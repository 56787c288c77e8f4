"""Where a program's process prints to, when who started it has sent that into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.drivers.questions import FILE_BYTES_MAX, Answer, FileText, Refused

#: The variable of the environment with the path of that file.
OUTPUT_VARIABLE: Final = "PENSTOCK_OUTPUT_FILE"


def end_of_file(path: Path) -> Answer:
    """What is in a file; of a long one, the end."""
    try:
        with path.open("rb") as file:
            left_out = max(0, file.seek(0, 2) - FILE_BYTES_MAX)
            file.seek(left_out)
            return FileText(file.read(FILE_BYTES_MAX), left_out)
    except OSError as error:
        return Refused(f"{path} cannot be read: {error}", is_unknown=True)
