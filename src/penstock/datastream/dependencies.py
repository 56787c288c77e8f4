"""Dependencies of a program's functions on the machines that run them: Python files, archives, interpreter, jars."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.errors import MissingPathError, UnsupportedError
from penstock.base.options import PYTHON_ARCHIVES, PYTHON_EXECUTABLE, PYTHON_FILES, SPARK_JARS, Option


class Dependencies:
    """The methods of an environment that declare the dependencies of a job."""

    _configuration: Configuration

    def add_python_file(self, file_path: str) -> None:
        """Make a .py file, a .zip or .egg, or a directory with packages importable where functions run.

        On Spark it is shipped to the executors (`addPyFile`), for this and every later job of the session. With
        `execution.target: local` it is added to this process's module search path.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        self._append(PYTHON_FILES, [_existing(file_path)])

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive (.zip, .tar.gz, .tgz, .jar), which is unpacked where functions run; on Spark only.

        A function finds it at `pyspark.SparkFiles.get(target_dir)`; on a cluster also as `target_dir` in its working
        directory.

        Args:
            archive_path: the archive's path on this machine.
            target_dir: the name of the directory for the unpacked archive; by default the archive's file name.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        path = _existing(archive_path)
        self._append(PYTHON_ARCHIVES, [f"{path}#{target_dir or os.path.basename(path)}"])

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python that runs the workers of a Spark session started by the job: a path on Spark's machines."""
        self._configuration.write(PYTHON_EXECUTABLE, python_exec)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install packages on the workers. This is not supported and raises NotImplementedError."""
        raise UnsupportedError(
            "workers do not install packages: install the requirements where Spark's workers run, or pack an "
            "environment (penstock package-env), ship it with add_python_archive and name its Python with "
            "set_python_executable"
        )

    def add_jars(self, *jars_path: str) -> None:
        """Add jars to a Spark session started by the job (`spark.jars`), such as those for Spark's own connectors.

        Penstock itself runs no JVM code, so Flink's Java connectors and functions have no effect.
        """
        self._append(SPARK_JARS, jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Add URLs to the class path of Java user code. Penstock runs none, so this raises NotImplementedError."""
        raise UnsupportedError("Penstock does not run a user's JVM code; add jars for Spark itself with add_jars")

    def _append(self, option: Option[Any], values: Iterable[str]) -> None:
        before = self._configuration.read(option)
        self._configuration.write(option, ",".join([*([before] if before else []), *values]))


def _existing(path: str) -> str:
    plain = path.removeprefix("file://")
    if not os.path.exists(plain):
        raise MissingPathError(f"{path!r} does not exist, so it cannot be shipped with the job")
    return os.path.abspath(plain)
