"""The selection as a plugin of pytest: one process chooses, the others are told, and what is left out is printed."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from tests.selection.choice import SLOW_TURNS, Choice, choose
from tests.selection.history import RECORD, History, HistoryError, write_record

_CHOICE: Final = pytest.StashKey[Choice | None]()
_LEFT_OUT: Final = pytest.StashKey[dict[str, Any]]()
_BEGUN_AT: Final = pytest.StashKey[str]()
_HOW: Final = "`make test-all` runs everything"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all`, `--record`."""
    parser.addoption("--all", action="store_true", help="run what most commits leave out, too", dest="everything")
    parser.addoption("--record", action="store_true", help=f"write {RECORD} if nothing fails; needs --all")


def pytest_configure(config: pytest.Config) -> None:
    """Choose, or take what the first process chose."""
    if hasattr(config, "workerinput"):
        told: str | None = config.workerinput["choice"]
        config.stash[_CHOICE] = None if told is None else Choice.from_json(told)
        return
    config.stash[_CHOICE] = _choose(config)
    if config.getoption("--record"):
        config.stash[_BEGUN_AT] = _begin_record(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process what runs."""
    choice = node.config.stash[_CHOICE]
    node.workerinput["choice"] = None if choice is None else choice.to_json()


def _choose(config: pytest.Config) -> Choice | None:
    """None if all of it runs, or `--store s3` says what."""
    if config.getoption("everything") or config.getoption("--store", default="local") == "s3":
        return None
    choice = choose(config.rootpath)
    has_paths = config.args_source is pytest.Config.ArgsSource.ARGS
    if not has_paths and not config.getoption("keyword") and not config.getoption("markexpr"):
        return choice
    named = tuple(_find_named(config)) if has_paths else ()
    return Choice("what the command line names", choice.turn, True, near=choice.near, named=named)


def _find_named(config: pytest.Config) -> list[str]:
    """The files and tests on the command line, as ids; not the folders."""
    found = []
    for argument in config.args:
        path, separator, test = argument.partition("::")
        file = Path(config.invocation_params.dir, path)
        if file.is_file():
            found.append(Path(os.path.relpath(file, config.rootpath)).as_posix() + separator + test)
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the choice does not take, and count it by rooms."""
    choice = config.stash[_CHOICE]
    if choice is None:
        return
    slow = {item.nodeid for item in items if item.get_closest_marker("slow")}
    taken = choice.select({item.nodeid: item.nodeid in slow for item in items})
    left_out = [item for item in items if item.nodeid not in taken]
    rooms = Counter("/".join(item.nodeid.partition("::")[0].split("/")[:2]) for item in left_out)
    count = {"of": len(items), "slow": len(slow - taken), "rooms": dict(rooms)}
    config.stash[_LEFT_OUT] = count
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = json.dumps(count)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.nodeid in taken]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear from a process what it left out; all leave out the same."""
    told = getattr(node, "workeroutput", {}).get("left_out")
    if told is not None:
        node.config.stash[_LEFT_OUT] = json.loads(told)


def pytest_report_header(config: pytest.Config) -> str:
    """Say what runs and why."""
    choice = config.stash[_CHOICE]
    if choice is None:
        return "selection: none"
    return f"selection: {choice.reason}; one slow test in {SLOW_TURNS} in turn"


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Say what was left out, and record a full run."""
    choice, count = config.stash[_CHOICE], config.stash.get(_LEFT_OUT, None)
    if choice is not None and count is not None:
        for line in describe(choice, count):
            terminalreporter.write_line(line)
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        terminalreporter.write_line(_end_record(config, terminalreporter.stats, exitstatus))


def describe(choice: Choice, count: dict[str, Any]) -> list[str]:
    """The lines about what was left out: the sum, then the rooms."""
    rooms: dict[str, int] = count["rooms"]
    total = sum(rooms.values())
    if not total:
        return [f"left out: nothing; selection: {choice.reason}"]
    first = f"left out: {total:,} of {count['of']:,} tests, {count['slow']:,} of them slow; {_HOW}"
    by_rooms = ", ".join(f"{room} {number:,}" for room, number in sorted(rooms.items(), key=lambda one: -one[1]))
    return [f"selection: {choice.reason}", first, f"  {by_rooms}"]


def _begin_record(config: pytest.Config) -> str:
    """The commit that the run is about.

    Raises:
        pytest.UsageError: if the run would not tell what a full run tells.
    """
    option = config.option
    narrow = option.keyword or option.markexpr or config.args_source is pytest.Config.ArgsSource.ARGS
    if not option.everything or narrow or config.getoption("--store", default="local") == "s3":
        raise pytest.UsageError("--record needs --all, and a run that nothing narrows")
    try:
        history = History(config.rootpath)
        return history.head() if history.is_clean() else ""
    except HistoryError:
        return ""


def _end_record(config: pytest.Config, stats: dict[str, list[Any]], exitstatus: int) -> str:
    """Record the run if it counts; the line that says so."""
    commit = config.stash[_BEGUN_AT]
    if exitstatus != 0:
        return "full run: not recorded, since it failed"
    try:
        history = History(config.rootpath)
        if not commit or history.head() != commit or not history.is_clean():
            return "full run: not recorded, since the tree held, or holds, more than one commit"
    except HistoryError as error:
        return f"full run: not recorded, since {error}"
    write_record(config.rootpath, commit, len(stats.get("passed", [])), len(stats.get("skipped", [])))
    return f"full run: recorded in {RECORD}; commit that file"
