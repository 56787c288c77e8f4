"""The dependencies of user-defined functions, in the process that runs them."""

from __future__ import annotations

import os
import sys

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import EXECUTION_TARGET, PYTHON_ARCHIVES, PYTHON_EXECUTABLE, PYTHON_FILES


def prepare(configuration: Configuration) -> None:
    """Add the job's Python files to the module path of this process.

    Raises:
        ConfigurationError: for options that only Spark supports.
    """
    local = f"{EXECUTION_TARGET.key()}: local"
    executable = configuration.read(PYTHON_EXECUTABLE)
    if executable is not None and os.path.realpath(executable) != os.path.realpath(sys.executable):
        raise ConfigurationError(
            f"{PYTHON_EXECUTABLE.key()}: {local} runs functions in this process, with {sys.executable}"
        )
    if configuration.read(PYTHON_ARCHIVES):
        raise ConfigurationError(f"{PYTHON_ARCHIVES.key()}: {local} does not unpack archives; unpack them yourself")
    for path in filter(None, (configuration.read(PYTHON_FILES) or "").split(",")):
        folder = os.path.dirname(path) if path.endswith(".py") else path
        if folder not in sys.path:
            sys.path.append(folder)
