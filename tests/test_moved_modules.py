"""Former names of modules give the modules that have their contents now (H4)."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from penstock.moved_modules import moved_modules
from penstock.runtime.windowing.windows import TimeWindow

SRC = Path(__file__).parents[1] / "src" / "penstock"


def exists(name: str) -> bool:
    path = SRC.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.joinpath("__init__.py").exists()


def test_each_former_name_has_a_present_module() -> None:
    assert [new for new in moved_modules().values() if not exists(new)] == []
    assert [old for old in moved_modules() if exists(old)] == []


def test_a_former_name_is_the_present_module_and_no_copy() -> None:
    assert import_module("penstock.core.windowing.windows") is sys.modules["penstock.runtime.windowing.windows"]
    assert import_module("penstock.core") is import_module("penstock.runtime")
    assert sys.modules["penstock.runtime"].__name__ == "penstock.runtime"


IMPORTING = """
import sys
from importlib import import_module
from penstock.moved_modules import moved_modules

for name in set(moved_modules().values()):
    import_module(f"penstock.{name}")
present = {name: dict(vars(module)) for name, module in sys.modules.items() if name.startswith("penstock")}
for name in moved_modules():
    import_module(f"penstock.{name}")
changed = [
    f"{name}.{key}"
    for name, before in present.items()
    for key, value in before.items()
    if key != "__builtins__" and vars(sys.modules[name]).get(key) is not value
]
print(changed)
"""


def test_each_former_name_can_be_imported_and_replaces_no_present_one() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


FROM_PACKAGES = """
import sys
from importlib import import_module
from penstock.moved_modules import moved_modules

moved = moved_modules()
wrong = []
for name in moved:
    package, _, leaf = name.rpartition(".")
    names = {}
    try:
        exec(f"from penstock.{package} import {leaf}" if package else f"import penstock.{leaf}", names)
    except ImportError:
        if len({new for old, new in moved.items() if old.endswith(f".{leaf}") and old != name}) == 0:
            wrong.append(name)
        continue
    present = import_module(f"penstock.{moved[name]}")
    is_own = leaf in vars(import_module(f"penstock.{package}")) if package else True
    if names.get(leaf) is not present and not is_own:
        wrong.append(name)
print(wrong)
"""


def test_former_names_can_be_imported_from_former_packages() -> None:
    """`from package import module` asks the package, which may have moved too, and tells its present name."""
    done = subprocess.run([sys.executable, "-c", FROM_PACKAGES], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_pickle_with_former_names_loads() -> None:
    former = b"cpenstock.core.windowing.windows\nTimeWindow\n."
    assert pickle.loads(former) is TimeWindow
