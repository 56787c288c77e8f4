"""New names in ALTER … RENAME."""

from __future__ import annotations

from penstock.table.data.errors import ValidationError

Path = tuple[str, str, str]


def renamed_path(full_path: Path, renamed: tuple[str, ...]) -> Path:
    """Resolve the target path of RENAME TO, which may omit the catalog and database: they cannot change."""
    new_path = (*full_path[: 3 - len(renamed)], *renamed)
    if len(new_path) != 3:
        raise ValidationError(f"a name has at most a catalog and a database before it: {'.'.join(renamed)}")
    if new_path[:2] != full_path[:2]:
        raise ValidationError(
            f"{'.'.join(full_path)} cannot become {'.'.join(new_path)}: RENAME TO keeps catalog and database"
        )
    return new_path
