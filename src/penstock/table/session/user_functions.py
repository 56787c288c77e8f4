"""User-defined functions: temporary catalog functions, and system functions, which all databases see."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import UnsupportedError
from penstock.table.catalog.objects import CatalogFunction
from penstock.table.data.errors import ValidationError
from penstock.table.user_functions.defining import define, load
from penstock.table.user_functions.definition import UserFunction

Path = tuple[str, str, str]


class UserFunctions:
    """The functions registered in a session. Names are case-insensitive."""

    def __init__(self) -> None:
        self._system: dict[str, Any] = {}
        self._temporary: dict[Path, Any] = {}
        #: by name and id of the registered object, which is kept alive because Python reuses ids
        self._defined: dict[tuple[str, int], tuple[Any, UserFunction]] = {}
        self._loaded: dict[tuple[str, str], UserFunction] = {}

    def system_names(self) -> list[str]:
        """Return the names of temporary system functions."""
        return sorted(self._system)

    def temporary_names(self, catalog: str, database: str) -> list[str]:
        """Return the names of a database's temporary functions."""
        return sorted(path[2] for path in self._temporary if path[:2] == (catalog, database))

    def find(self, path: Path) -> Any | None:
        """Return the function with this name, or None. A system function hides a database's function."""
        return self._system.get(path[2].lower(), self._temporary.get(_key(path)))

    def find_system(self, name: str) -> Any | None:
        """Return the temporary system function with this name, or None."""
        return self._system.get(name.lower())

    def find_temporary(self, path: Path) -> Any | None:
        """Return the temporary function at this path, or None."""
        return self._temporary.get(_key(path))

    def defined(self, registered: Any, name: str) -> UserFunction:
        """Return a registered object as the function that queries call. The same object always gives the same function.

        Raises:
            UnsupportedError: if the function is not written in Python.
            ValidationError: if its module does not exist or does not define it.
            TypeError: if the object is not a function.
        """
        if isinstance(registered, CatalogFunction):
            if registered.language.upper() != "PYTHON":
                raise UnsupportedError(
                    f"function {name} is written in {registered.language.upper()}, which Penstock does not run: write "
                    f"it in Python, and create it AS 'module.name' LANGUAGE PYTHON"
                )
            key = (registered.target, name)
            if key not in self._loaded:
                self._loaded[key] = load(registered.target, name)
            return self._loaded[key]
        known = self._defined.get((name, id(registered)))
        if known is None:
            known = self._defined[name, id(registered)] = registered, define(registered, name)
        return known[1]

    def add_system(self, name: str, function: Any, if_not_exists: bool = False) -> None:
        """Register a function that hides all others of its name."""
        if name.lower() not in self._system:
            self._system[name.lower()] = function
        elif not if_not_exists:
            raise ValidationError(f"Could not register temporary system function. A function named '{name}' exists.")

    def drop_system(self, name: str, if_exists: bool = False) -> bool:
        """Remove a system function. Returns whether it existed."""
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
        """Return whether there is a temporary function at this path."""
        return _key(path) in self._temporary

    def drop(self, path: Path, if_exists: bool = False) -> bool:
        """Remove a temporary function. Returns whether it existed."""
        if self._temporary.pop(_key(path), None) is not None:
            return True
        if not if_exists:
            raise ValidationError(f"Temporary catalog function {'.'.join(path)} doesn't exist")
        return False


def _key(path: Path) -> Path:
    return (path[0], path[1], path[2].lower())
