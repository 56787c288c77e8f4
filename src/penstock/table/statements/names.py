"""New names in ALTER … RENAME."""

from __future__ import annotations

from penstock.table.data.errors import ValidationError

Path = tuple[str, str, str]


def renamed_path(whole: Path, renamed: tuple[str, ...]) -> Path:
    """Resolve the target path of RENAME TO, which may omit the catalog and database: they cannot change."""
    found = (*whole[: 3 - len(renamed)], *renamed)
    if len(found) != 3:
        raise ValidationError(f"a name has at most a catalog and a database before it: {'.'.join(renamed)}")
    if found[:2] != whole[:2]:
        raise ValidationError(
            f"{'.'.join(whole)} cannot become {'.'.join(found)}: RENAME TO keeps catalog and database"
        )
    return found
