"""A driver that was deposed can complete, commit and delete nothing, whatever it was in the middle of (E7, G8)."""

from __future__ import annotations

import itertools

import fsspec
import msgspec
import pytest
from tests.storage.test_file_store import build_metadata

from penstock.base.errors import CheckpointError
from penstock.runtime.checkpoint.savepoints import Choice, choose_latest, forerunners
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import lists_exactly
from penstock.storage.leadership import BEGUN, DeposedError, Found, JobMark, checkpoint_counts, mark_counts

pytestmark = pytest.mark.slow

NAME = "words"


class Driver:
    """One process that leads, or believes that it does. `job_id` is another one in each driver that is started."""

    clock = itertools.count(1)

    def __init__(self, directory: str, job_id: str) -> None:
        self.directory = directory
        self.job_id = job_id
        self.store = FileCheckpointStore(directory, job_id, 0)

    def begin(self) -> Driver:
        """Anew, whatever there is."""
        self.store.join(NAME)
        return self

    def go_on(self) -> Choice:
        """From the newest that jobs of its name have left."""
        left = self.store.take_over(NAME)
        choice = choose_latest(left)
        self.continued = forerunners(left, choice, False, self.job_id).to_delete
        return choice

    def complete(self, checkpoint_id: int) -> None:
        file = self.store.write(checkpoint_id, "op-0-0-count", f"state {self.job_id}".encode())
        metadata = build_metadata(file, checkpoint_id=checkpoint_id)
        named = msgspec.structs.replace(
            metadata, job_id=self.job_id, job_name=NAME, timestamp_ms=next(self.clock), external_path=None
        )
        self.store.complete(named)

    def mark(self, status: str, discards: bool = False) -> None:
        self.store.mark_job(JobMark(self.job_id, NAME, status, next(self.clock), discards=discards))

    def files(self) -> list[str]:
        fs, root = fsspec.core.url_to_fs(self.directory)
        fs.invalidate_cache()
        return sorted(path.removeprefix(f"{root}/") for path in fs.find(root))


def found(choice: Choice) -> list[tuple[str, int]]:
    return [(metadata.job_id, metadata.checkpoint_id) for metadata in choice.checkpoints]


@pytest.fixture
def zombie(root: str) -> Driver:
    """The first driver of a job, with one checkpoint; it does not know yet what others do."""
    zombie = Driver(root, "a").begin()
    zombie.mark(BEGUN)
    zombie.complete(1)
    return zombie


def after(driver: Driver, job_id: str) -> Driver:
    return Driver(driver.directory, job_id)


def test_one_that_leads_goes_on(zombie: Driver) -> None:
    zombie.complete(2)
    zombie.store.delete([])
    zombie.store.check_leads()


def test_what_a_deposed_driver_completes_does_not_count(zombie: Driver) -> None:
    """E7: it is visible, its driver hears that it was deposed, and neither the next one nor a third begins from it."""
    assert found(after(zombie, "b").go_on()) == [("a", 1)]
    with pytest.raises(DeposedError, match="job 'words' was suspended: another driver, number 1 of this name, has"):
        zombie.complete(2)
    assert found(after(zombie, "c").go_on()) == [("a", 1)]


def test_what_was_visible_before_it_was_deposed_counts(zombie: Driver) -> None:
    """E7: its driver may still have been told to commit it, so the next one has to begin from it."""
    zombie.complete(2)
    assert found(after(zombie, "b").go_on()) == [("a", 2), ("a", 1)]


def test_checkpoints_of_the_successor_are_newer_whatever_the_clocks_say(zombie: Driver) -> None:
    """E7: hosts differ in their clocks, and the number of the driver does not."""
    second = after(zombie, "b")
    second.go_on()
    second.clock = itertools.count(-100)
    second.complete(2)
    with pytest.raises(DeposedError):
        zombie.complete(2)
    third = after(zombie, "c")
    assert found(third.go_on()) == [("b", 2), ("a", 1)]
    third.complete(3)
    assert found(after(zombie, "d").go_on())[0] == ("c", 3)


def test_one_that_was_deposed_before_its_first_checkpoint(zombie: Driver) -> None:
    """E7: it has left nothing by which anybody could know that it is there."""
    second = after(zombie, "b")
    second.go_on()
    third = after(zombie, "c")
    assert found(third.go_on()) == [("a", 1)]
    with pytest.raises(DeposedError):
        second.complete(2)
    third.complete(2)
    assert found(after(zombie, "d").go_on()) == [("c", 2), ("a", 1)]


def test_two_masters_of_one_job(zombie: Driver) -> None:
    """E7: with ids of checkpoints on either side of each other; what is there is never written over."""
    second = after(zombie, "a")
    second.go_on()
    with pytest.raises(DeposedError):
        zombie.complete(2)
    with pytest.raises(CheckpointError, match="exists"):
        second.complete(2)
    second.complete(3)
    with pytest.raises(DeposedError):
        zombie.complete(4)
    third = after(zombie, "a")
    assert found(third.go_on()) == [("a", 3), ("a", 1)]
    third.complete(5)
    assert found(after(zombie, "a").go_on()) == [("a", 5), ("a", 3), ("a", 1)]


def test_a_deposed_driver_deletes_nothing(zombie: Driver) -> None:
    """E7, G8."""
    after(zombie, "b").go_on()
    before = zombie.files()
    with pytest.raises(DeposedError):
        zombie.store.delete(zombie.store.listing())
    with pytest.raises(DeposedError):
        zombie.store.delete_savepoint(f"{zombie.directory}/a/chk-1")
    assert zombie.files() == before


def test_a_deposed_driver_begins_no_attempt(zombie: Driver) -> None:
    """E7: each begins with a look at the checkpoint that it restores."""
    after(zombie, "b").go_on()
    with pytest.raises(DeposedError):
        zombie.store.verify(zombie.store.load_checkpoint(1))


def test_the_end_of_a_deposed_driver_is_not_that_of_its_job(zombie: Driver) -> None:
    """E7, G8: nor does it take the place of what its successor has said."""
    second = after(zombie, "b")
    second.go_on()
    with pytest.raises(DeposedError):
        zombie.mark("FINISHED", discards=True)
    assert found(after(zombie, "c").go_on()) == [("a", 1)]
    third = after(zombie, "c")
    third.go_on()
    third.mark("FINISHED")
    with pytest.raises(DeposedError):
        second.mark("CANCELED")
    end = after(zombie, "d").go_on().end
    assert end is not None
    assert end.job_id == "c"


def test_the_end_of_a_deposed_driver_deletes_nothing_later(zombie: Driver) -> None:
    """E7, G8: a job that begins anew deletes what jobs of its name have said that they delete, if that counts."""
    second = after(zombie, "b")
    second.go_on()
    with pytest.raises(DeposedError):
        zombie.mark("FINISHED", discards=True)
    after(zombie, "c").begin().mark(BEGUN)
    second.store.verify(second.store.load(f"{zombie.directory}/a/chk-1"))


def test_a_job_that_has_ended_stays_so(zombie: Driver) -> None:
    """G8: every driver that is started finds that nothing is left to do, and says so by doing nothing."""
    zombie.mark("FINISHED", discards=True)
    for job_id in ("b", "c", "d"):
        end = after(zombie, job_id).go_on().end
        assert end is not None
        assert end.job_id == "a"


def test_a_deposed_driver_does_not_revoke_what_its_successor_has_completed(zombie: Driver) -> None:
    """E7, G8: its own write of checkpoint 2 hung; meanwhile another master of the same job has used the number."""
    second = after(zombie, "a")
    second.go_on()
    second.complete(2)
    with pytest.raises(DeposedError):
        zombie.store.revoke(2)
    assert found(after(zombie, "a").go_on()) == [("a", 2), ("a", 1)]


def test_a_deposed_driver_does_not_revoke_what_its_successor_has_begun_from(zombie: Driver) -> None:
    """E7, G8: the answer to its own write of checkpoint 2 was lost, and the checkpoint is there."""
    zombie.complete(2)
    assert found(after(zombie, "b").go_on()) == [("a", 2), ("a", 1)]
    with pytest.raises(DeposedError):
        zombie.store.revoke(2)
    assert found(after(zombie, "c").go_on()) == [("a", 2), ("a", 1)]


def test_one_that_died_before_it_looked_changes_nothing(zombie: Driver) -> None:
    """E7: it took a number, so the one before it is deposed, and began from nothing."""
    zombie.store._build_leaders(NAME).take("b")
    with pytest.raises(DeposedError):
        zombie.complete(2)
    assert found(after(zombie, "b").go_on()) == [("a", 2), ("a", 1)]


def test_jobs_that_begin_anew_depose_nobody(zombie: Driver) -> None:
    """E7: two programs may have one name without knowing it, because neither has named its job."""
    other = after(zombie, "b").begin()
    other.mark(BEGUN)
    zombie.complete(2)
    other.complete(1)
    zombie.store.check_leads()
    other.store.check_leads()


def test_other_names_are_other_jobs(zombie: Driver) -> None:
    """E7."""
    after(zombie, "b").store.take_over("wordy")
    zombie.complete(2)


def test_what_drivers_leave_of_themselves(zombie: Driver) -> None:
    """E7, G8: a job that is started again and again leaves one number and one record.

    Where listings may be late, the numbers of all are needed to find the highest.
    """
    for number in range(5):
        after(zombie, f"b{number}").go_on()
    left = [name.rpartition("/")[2] for name in zombie.files() if "master-" in name]
    fs, _ = fsspec.core.url_to_fs(zombie.directory)
    numbers = ["master-5"] if lists_exactly(fs) else [f"master-{number}" for number in range(1, 6)]
    # The first one began anew, so what it said of itself has the number 0.
    said = [] if lists_exactly(fs) else ["mark-of-master-0"]
    assert left == ["found-by-master-5", *said, *numbers]


def continued(driver: Driver) -> list[str]:
    driver.go_on()
    return list(driver.continued)


def test_which_jobs_a_driver_continues(zombie: Driver) -> None:
    """E7, G8: also those that died before they had a checkpoint, and would be nobody's for ever."""
    second, third = after(zombie, "b"), after(zombie, "c")
    assert continued(second) == ["a"]
    second.store.write(1, "op-0-0-count", b"for a checkpoint that never came to be")
    assert continued(third) == ["a", "b"]
    third.complete(1)
    third.store.delete_jobs(third.continued)
    assert [name for name in third.files() if not name.startswith(("jobs/", "c/chk-1/"))] == []
    assert {name.split("/")[0] for name in zombie.files()} == {"c", "jobs"}
    assert continued(after(zombie, "d")) == ["a", "c"]  # the mark of the first one's beginning is still there


def test_one_that_left_no_directory_may_have_left_output(zombie: Driver) -> None:
    """E7, G8: it died in its first checkpoint. Successors continue it until one of them has a checkpoint, or ends."""
    assert continued(after(zombie, "b")) == ["a"]
    assert continued(after(zombie, "c")) == ["a", "b"]
    fourth, fifth = after(zombie, "d"), after(zombie, "e")
    assert continued(fourth) == ["a", "b", "c"]
    fourth.complete(1)
    assert continued(fifth) == ["a", "d"]
    assert continued(after(zombie, "f")) == ["a", "d", "e"]


@pytest.mark.parametrize("status", ["FINISHED", "CANCELED", "FAILED"])
def test_of_one_that_left_no_directory_nothing_counts_after_an_end(zombie: Driver, status: str) -> None:
    """E7, G8."""
    after(zombie, "b").go_on()
    third = after(zombie, "c")
    third.go_on()
    third.mark(status)
    assert after(zombie, "d").store.take_over(NAME).former == ()


def test_what_a_deposed_driver_writes_later_is_deleted_by_those_that_follow(zombie: Driver) -> None:
    """E7, G8: it was deleted before, and is there again."""
    second = after(zombie, "b")
    second.go_on()
    second.store.write(1, "op-0-0-count", b"early")
    third = after(zombie, "c")
    third.go_on()
    third.store.delete_jobs(third.continued)
    second.store.write(1, "op-0-0-count", b"late")
    assert continued(after(zombie, "d")) == ["a", "b", "c"]


def test_what_is_left_of_a_job_that_has_ended_belongs_to_users(zombie: Driver) -> None:
    """E7, G8: it was cancelled, and keeps its checkpoints; one that begins anew has nothing to do with those either."""
    zombie.mark("CANCELED")
    second, third = after(zombie, "b"), after(zombie, "c")
    assert continued(second) == []
    second.complete(1)
    assert continued(third) == ["b"]
    after(zombie, "d").begin().mark(BEGUN)
    fifth = after(zombie, "e")
    assert continued(fifth) == ["d"]
    fifth.complete(1)
    assert continued(after(zombie, "f")) == ["d", "e"]


def test_a_deposed_driver_deletes_no_forerunners(zombie: Driver) -> None:
    """E7, G8: its successor begins from one of them."""
    second = after(zombie, "b")
    second.go_on()
    after(zombie, "c").go_on()
    before = zombie.files()
    with pytest.raises(DeposedError):
        second.store.delete_jobs(second.continued)
    assert zombie.files() == before


def test_a_file_cannot_name_what_is_no_job(zombie: Driver) -> None:
    """E7: a damaged number of a master makes nobody delete other directories."""
    after(zombie, "b").go_on()
    (number,) = (name for name in zombie.files() if name.endswith("/master-1"))
    with fsspec.open(f"{zombie.directory}/{number}", "w") as file:
        file.write("..")
    assert continued(after(zombie, "c")) == ["a"]


@pytest.mark.parametrize(
    ("checkpoint", "master", "is_one"),
    [(("a", 5), 0, True), (("a", 6), 0, False), (("b", 5), 1, False), (("a", 6), 2, True), (("c", 1), 3, True)],
)
def test_which_checkpoints_count(checkpoint: tuple[str, int], master: int, is_one: bool) -> None:
    """E7: master 2 has found checkpoint 5 of job a."""
    assert checkpoint_counts(Found(2, (("a", 5),)), *checkpoint, master) is is_one
    assert checkpoint_counts(None, *checkpoint, master)


def test_which_marks_count() -> None:
    """E7: a job that had begun has said since that it ended, and only the former was found."""
    record = Found(2, (), (("a", BEGUN),))
    assert mark_counts(record, "a", BEGUN, 0)
    assert not mark_counts(record, "a", "FINISHED", 0)
    assert mark_counts(record, "a", "FINISHED", 2)
    assert mark_counts(None, "a", "FINISHED", 0)
