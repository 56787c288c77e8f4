"""Data files as plain values for checkpoints: a savepoint must not depend on the classes of one pyiceberg version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

#: the fields of a data file, by their names in the Iceberg specification
StoredFile = dict[str, Any]


def stored(file: DataFile) -> StoredFile:
    """Convert a data file to plain values."""
    from pyiceberg.manifest import DATA_FILE_TYPE

    names = [field.name for field in DATA_FILE_TYPE[2].fields]
    values: StoredFile = {name: file[index] for index, name in enumerate(names) if file[index] is not None}
    values["content"] = int(file.content)
    values["file_format"] = file.file_format.value
    values["partition"] = tuple(file.partition[index] for index in range(len(file.partition)))
    return values


def restored(values: StoredFile, spec_id: int) -> DataFile:
    """Convert plain values to a data file that is partitioned by the spec with this id."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    file = DataFile.from_args(
        **{
            **values,
            "content": DataFileContent(values["content"]),
            "file_format": FileFormat(values["file_format"]),
            "partition": Record(*values["partition"]),
        }
    )
    file.spec_id = spec_id
    return file
