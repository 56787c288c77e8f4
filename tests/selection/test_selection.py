"""What `make test` selects, in a small repository with the layout of this one."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.selection.choice import FILE_TURNS, NEAR_MOST, SLOW_TURNS, Choice
from tests.selection.history import RECORD, write_record
from tests.selection.plugin import describe
from tests.selection.rooms import EVERYTHING, ROOMS, find_rooms, is_shared_helper, is_test

ROOT = Path(__file__).parents[2]
TESTS = {f"{path.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("test_*.py")}

MARKED_SLOW = "import pytest\n\n@pytest.mark.slow\n@pytest.mark.parametrize('n', range(21))\ndef test_slow(n): pass\n"
#: the small repository: cep needs runtime, sql needs cep, and a test of sql needs sql over a helper
FILES = {
    ".gitignore": "__pycache__/\n",
    "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\naddopts = '--import-mode=importlib'\n"
    "pythonpath = ['.']\nmarkers = ['slow']\n",
    "CHANGELOG.md": "",
    "docs/cep.md": "",
    "src/penstock/__init__.py": "",
    "src/penstock/runtime/__init__.py": "",
    "src/penstock/runtime/task.py": "",
    "src/penstock/cep/__init__.py": "",
    "src/penstock/cep/pattern.py": "import penstock.runtime.task\n",
    "src/penstock/sql/__init__.py": "",
    "src/penstock/sql/match.py": "def match():\n    from penstock.cep import pattern\n",
    "src/penstock/gelly/__init__.py": "",
    "src/penstock/gelly/graph.py": "",
    "tests/conftest.py": "pytest_plugins = ['tests.selection.plugin']\n",
    "tests/helper.py": "",
    "tests/test_style.py": "def test_style(): pass\n",
    "tests/cep/test_pattern.py": f"import penstock.cep.pattern\n{MARKED_SLOW}\ndef test_quick(): pass\n",
    "tests/cep/golden/pattern.json": "{}",
    "tests/table/sql/run_sql.py": "import penstock.sql.match\n",
    "tests/table/sql/test_match.py": f"import tests.table.sql.run_sql\n{MARKED_SLOW}",
    "tests/gelly/test_graph.py": f"import penstock.gelly.graph\n{MARKED_SLOW}\ndef test_quick(): pass\n",
    "tests/gelly/library/conftest.py": "",
    "tests/gelly/library/test_library.py": "import penstock.gelly.graph\n\ndef test_quick(): pass\n",
    "tests/examples/test_pages.py": "import pytest\n\n@pytest.mark.slow\n"
    "@pytest.mark.parametrize('page', ['docs/cep.md', 'docs/sql.md'])\ndef test_page(page): pass\n",
}
CEP, SQL, GELLY = "tests/cep/test_pattern.py", "tests/table/sql/test_match.py", "tests/gelly/test_graph.py"
#: run by programs, as it imports nothing; rules
OUTSIDER, STYLE = "tests/examples/test_pages.py", "tests/test_style.py"


class Repository:
    """A small repository."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str) -> str:
        """The output of a git command."""
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(self.root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self._environment).stdout.strip()

    @property
    def _environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTEST_"))}
        return clean | {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}",
        }

    def write(self, *paths: str, text: str | None = None) -> None:
        """Change files."""
        for path in paths:
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{file.read_text() if file.exists() else ''}\n" if text is None else text)

    def commit(self, *paths: str) -> str:
        """Change files and commit them."""
        self.write(*paths)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def record(self, commit: str | None = None) -> None:
        """Say that all tests of a commit passed, and that its slow tests have had their turns."""
        write_record(self.root, commit or self.git("rev-parse", "HEAD"), 1, 0)
        self.commit()

    def choose(self) -> Choice:
        """What runs."""
        code = "from pathlib import Path; from tests.selection.choice import choose; print(choose(Path('.')).to_json())"
        return Choice.from_json(self._run(sys.executable, "-c", code))

    def run_tests(self, *arguments: str, fails: bool = False) -> str:
        """The output of pytest."""
        return self._run(
            sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "xdist", *arguments, fails=fails
        )

    def _run(self, *command: str, fails: bool = False) -> str:
        done = subprocess.run(
            command, cwd=self.root, env=self._environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One with a commit of which all tests passed."""
    made = Repository(tmp_path / "repository")
    for path, text in FILES.items():
        made.write(path, text=text)
    shared = [path for path in (ROOT / "tests/selection").glob("*.py") if not is_test(f"tests/{path.name}")]
    for source in (*shared, ROOT / "tests/simulation/fresh_seeds.py", ROOT / "tests/effort.py"):
        made.write(str(source.relative_to(ROOT)), text=source.read_text())
    made.git("init", "-q")
    made.commit()
    made.record()
    return made


@pytest.mark.parametrize(
    ("path", "files"),
    [
        pytest.param("src/penstock/gelly/graph.py", {GELLY, "tests/gelly/library/test_library.py"}, id="room"),
        pytest.param("src/penstock/cep/pattern.py", {CEP, SQL}, id="imports inside functions and over a helper"),
        pytest.param("src/penstock/cep/__init__.py", {CEP, SQL}, id="package"),
        pytest.param("tests/table/sql/run_sql.py", {SQL}, id="helper"),
        pytest.param("tests/gelly/library/conftest.py", {"tests/gelly/library/test_library.py"}, id="conftest"),
        pytest.param("tests/cep/golden/pattern.json", {CEP}, id="data of tests"),
        pytest.param(SQL, {SQL}, id="test"),
        pytest.param("CHANGELOG.md", set(), id="nothing"),
    ],
)
def test_a_change_selects_what_needs_it(repository: Repository, path: str, files: set[str]) -> None:
    repository.commit(path)
    choice = repository.choose()
    assert not choice.everything
    outsiders = {OUTSIDER, STYLE} if path.startswith("src/") else {STYLE}
    assert set(choice.files) == files | outsiders


def test_nothing_is_selected_where_nothing_changed(repository: Repository) -> None:
    choice = repository.choose()
    assert (choice.everything, choice.files) == (False, ())


def test_changes_that_no_commit_holds_count(repository: Repository) -> None:
    repository.write("src/penstock/gelly/graph.py")
    repository.write("tests/cep/test_new.py", text="import penstock.cep.pattern\n")
    assert {GELLY, "tests/cep/test_new.py"} <= set(repository.choose().files)


def test_a_file_that_went_or_moved_counts_where_it_was(repository: Repository) -> None:
    repository.git("mv", "src/penstock/gelly/graph.py", "src/penstock/sql/graph.py")
    assert GELLY in repository.choose().files


def test_changes_add_up_since_the_full_run(repository: Repository) -> None:
    repository.commit("src/penstock/gelly/graph.py")
    repository.commit("src/penstock/cep/pattern.py")
    assert {GELLY, CEP} <= set(repository.choose().files)


@pytest.mark.parametrize(
    "path",
    [
        "src/penstock/runtime/task.py",
        "pyproject.toml",
        "requirements.lock",
        "tests/helper.py",
        "tests/conftest.py",
        "a file that no row knows",
    ],
)
def test_a_change_of_what_all_need_and_an_unknown_path_select_everything(repository: Repository, path: str) -> None:
    repository.commit(path)
    choice = repository.choose()
    assert choice.everything
    assert path in choice.reason


def _forget(repository: Repository) -> None:
    (repository.root / RECORD).unlink()


def _break(repository: Repository) -> None:
    repository.write(RECORD, text="commit")


def _do_not_know(repository: Repository) -> None:
    repository.record("0" * 40)


def _lose_git(repository: Repository) -> None:
    shutil.rmtree(repository.root / ".git")


def _be_inside_another(repository: Repository) -> None:
    inner = repository.root / "inner"
    shutil.copytree(repository.root, inner, ignore=shutil.ignore_patterns(".git"))
    repository.root = inner


def _be_shallow(repository: Repository) -> None:
    clone = repository.root.parent / "clone"
    repository.git("clone", "-q", "--depth", "1", repository.root.as_uri(), str(clone))
    repository.root = clone


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (_forget, "no full run is recorded"),
        (_break, "cannot be read"),
        (_do_not_know, "unknown here"),
        (_lose_git, "not a git repository"),
        (_be_inside_another, "not the root"),
        (_be_shallow, "shallow"),
    ],
)
def test_everything_runs_where_history_is_not_known(
    repository: Repository, happens: Callable[[Repository], None], reason: str
) -> None:
    happens(repository)
    choice = repository.choose()
    assert choice.everything
    assert reason in choice.reason


def test_each_file_has_a_turn_in_so_many_commits(repository: Repository) -> None:
    tests = {f"tests/state/test_{number}.py::test": False for number in range(50)}
    runs: list[set[str]] = []
    for _ in range(FILE_TURNS):
        repository.commit("CHANGELOG.md")
        runs.append(repository.choose().select(tests))
    assert set().union(*runs) == set(tests)
    assert sum(map(len, runs)) == len(tests)


def test_each_slow_test_has_a_turn_even_where_everything_runs() -> None:
    tests = {f"tests/spec/test_job.py::test[{number}]": True for number in range(100)}
    runs = [Choice("", turn, everything=True).select(tests) for turn in range(SLOW_TURNS)]
    assert set().union(*runs) == set(tests)
    assert sum(map(len, runs)) == len(tests)


def test_a_slow_test_near_what_changed_runs_until_all_of_its_room_had_a_turn(repository: Repository) -> None:
    for _ in range(SLOW_TURNS):
        repository.commit()
    repository.record()
    assert repository.choose().near == ()
    repository.commit("src/penstock/cep/pattern.py", "src/penstock/runtime/task.py")
    choice = repository.choose()
    assert choice.everything
    assert choice.near == (CEP,)
    for _ in range(SLOW_TURNS - 1):
        repository.commit()
    assert repository.choose().near == (CEP,)
    repository.commit()
    assert repository.choose().near == ()


def test_a_page_selects_the_slow_tests_with_its_name(repository: Repository) -> None:
    repository.commit("docs/cep.md")
    choice = repository.choose()
    tests = {f"{OUTSIDER}::test_page[docs/{name}.md]": True for name in ("cep", "sql")}
    never = Choice("", choice.turn, everything=True, near=choice.near, subjects=choice.subjects).select(tests)
    assert f"{OUTSIDER}::test_page[docs/cep.md]" in never
    assert OUTSIDER not in choice.near


def test_a_change_of_many_rooms_runs_a_bounded_number_of_slow_tests() -> None:
    tests = {f"tests/spec/test_job.py::test[{number}]": True for number in range(NEAR_MOST * 10)}
    choice = Choice("", 1, everything=True, near=("tests/spec/test_job.py",))
    in_turn = Choice("", 1, everything=True).select(tests)
    assert in_turn < choice.select(tests)
    assert len(choice.select(tests) - in_turn) < NEAR_MOST * 1.5
    few = dict(list(tests.items())[:NEAR_MOST])
    assert choice.select(few) == set(few)


def _ran(output: str) -> set[str]:
    return set(re.findall(r"^(?:\[gw\d\].*?PASSED )?(tests/\S+?)(?: PASSED.*| )?$", output, re.MULTILINE))


def test_a_run_says_what_it_left_out_and_every_process_selects_the_same(repository: Repository) -> None:
    repository.commit("src/penstock/gelly/graph.py")
    alone, shared = repository.run_tests(), repository.run_tests("-n", "2")
    assert _ran(alone) == _ran(shared)
    assert f"{GELLY}::test_quick" in _ran(alone)
    for output in (alone, shared):
        assert output.count("left out: ") == 1
        left_out = re.search(r"left out: (\d+) of (\d+) tests, (\d+) of them slow", output)
        assert left_out is not None
        assert int(left_out[2]) - int(left_out[1]) == len(_ran(output))


def test_a_named_file_and_a_named_test_run_and_so_does_a_named_word(repository: Repository) -> None:
    repository.commit("CHANGELOG.md")
    assert len(_ran(repository.run_tests(f"{CEP}::test_slow"))) == 21
    assert len(_ran(repository.run_tests("-n", "1", CEP))) == 22
    assert {f"{CEP}::test_quick", f"{GELLY}::test_quick"} <= _ran(repository.run_tests("-k", "quick"))
    assert {f"{GELLY}::test_quick"} <= _ran(repository.run_tests("tests/gelly"))


def test_a_full_run_runs_all_and_is_recorded(repository: Repository) -> None:
    commit = repository.commit("src/penstock/gelly/graph.py")
    output = repository.run_tests("--all", "--record", "-n", "2")
    assert len(_ran(output)) == 3 * 21 + 6
    assert f'commit = "{commit}"' in (repository.root / RECORD).read_text()
    repository.commit()
    assert repository.choose().files == ()


def test_a_full_run_that_fails_or_is_of_no_commit_is_not_recorded(repository: Repository) -> None:
    before = (repository.root / RECORD).read_text()
    repository.write("src/penstock/gelly/graph.py")
    assert "not recorded" in repository.run_tests("--all", "--record")
    repository.write("tests/test_style.py", text="def test_style(): assert False\n")
    repository.commit()
    assert "not recorded" in repository.run_tests("--all", "--record", fails=True)
    repository.run_tests("--all", "--record", "-k", "quick", fails=True)
    repository.run_tests("--record", fails=True)
    assert (repository.root / RECORD).read_text() == before


def test_the_rooms_that_were_left_out_are_listed_largest_first() -> None:
    count = {"of": 3000, "slow": 2, "rooms": {"tests/cep": 2, "tests/table": 1500}}
    assert describe(Choice("why", 1, everything=False), count)[1:] == [
        "left out: 1,502 of 3,000 tests, 2 of them slow; `make test-all` runs everything",
        "  tests/table 1,500, tests/cep 2",
    ]


# --- the table and this repository ---


def _exists(prefix: str) -> bool:
    return (ROOT / prefix).exists() if prefix.endswith("/") else any(ROOT.glob(f"{prefix}*"))


def test_every_row_is_about_something() -> None:
    below = ("src/", "tests/", "docs/", "examples/", "benchmarks/", "scripts/", "web/")
    assert not [row for row in ROOMS if row.startswith(below) and not _exists(row)]
    assert not [room for rooms in ROOMS.values() for room in rooms if not any(t.startswith(room) for t in TESTS)]


def test_every_room_of_the_package_has_a_row() -> None:
    paths = (str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py"))
    assert not [path for path in paths if find_rooms(path) is None]


def _imported(path: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_change_of_what_all_tests_load_selects_everything() -> None:
    names = set(_imported(ROOT / "tests/conftest.py"))
    paths = [f"{folder}{name.replace('.', '/')}.py" for name in names for folder in ("", "src/")]
    loaded = [path for path in paths if path.startswith(("src/penstock", "tests")) and (ROOT / path).exists()]
    assert loaded
    assert not [path for path in loaded if find_rooms(path) != EVERYTHING and not is_shared_helper(path)]


def test_a_page_selects_the_tests_that_read_it() -> None:
    """By the table, or by an id in `tests/examples`."""
    missing = []
    for test in sorted(path for path in TESTS if not path.startswith(("tests/examples/", "tests/selection/"))):
        for name in set(re.findall(r'"docs"? ?/ ?"?([\w-]+\.md)"', (ROOT / test).read_text())):
            rooms = find_rooms(f"docs/{name}") or ()
            if not test.startswith((*rooms, "tests/test_")):
                missing.append(f"docs/{name} does not select {test}")
    assert not missing
