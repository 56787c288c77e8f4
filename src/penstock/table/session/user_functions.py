"""Functions of the program: temporary ones, and those that every database knows."""

from __future__ import annotations

from typing import Any

from penstock.table.data.errors import ValidationError

Path = tuple[str, str, str]


class UserFunctions:
    """What a session has registered. Names count without their case."""

    def __init__(self) -> None:
        self._system: dict[str, Any] = {}
        self._temporary: dict[Path, Any] = {}

    def has(self, path: Path) -> bool:
        """Whether a function without a path before its name is one of these."""
        return path[2].lower() in self._system or _key(path) in self._temporary

    def system_names(self) -> list[str]:
        """The names of temporary system functions."""
        return sorted(self._system)

    def temporary_names(self, catalog: str, database: str) -> list[str]:
        """The names of temporary functions of a database."""
        return sorted(path[2] for path in self._temporary if path[:2] == (catalog, database))

    def find(self, path: Path) -> Any | None:
        """The function of this name, or None."""
        return self._system.get(path[2].lower(), self._temporary.get(_key(path)))

    def add_system(self, name: str, function: Any, if_not_exists: bool = False) -> None:
        """Register a function that hides all others of its name."""
        if name.lower() not in self._system:
            self._system[name.lower()] = function
        elif not if_not_exists:
            raise ValidationError(f"Could not register temporary system function. A function named '{name}' exists.")

    def drop_system(self, name: str, if_exists: bool = False) -> bool:
        """Take a system function away. Returns whether there was one."""
        if self._system.pop(name.lower(), None) is not None:
            return True
        if not if_exists:
            raise ValidationError(f"Could not drop temporary system function. A function named '{name}' doesn't exist.")
        return False

    def add(self, path: Path, function: Any, if_not_exists: bool = False) -> None:
        """Register a temporary function of a database."""
        if _key(path) not in self._temporary:
            self._temporary[_key(path)] = function
        elif not if_not_exists:
            raise ValidationError(
                f"Could not register temporary catalog function. A function '{'.'.join(path)}' does already exist."
            )

    def has_temporary(self, path: Path) -> bool:
        """Whether there is a temporary function of this path."""
        return _key(path) in self._temporary

    def drop(self, path: Path, if_exists: bool = False) -> bool:
        """Take a temporary function away. Returns whether there was one."""
        if self._temporary.pop(_key(path), None) is not None:
            return True
        if not if_exists:
            raise ValidationError(f"Temporary catalog function {'.'.join(path)} doesn't exist")
        return False


def _key(path: Path) -> Path:
    return (path[0], path[1], path[2].lower())
