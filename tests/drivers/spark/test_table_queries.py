import threading
import time

from penstock.drivers.spark.table_queries import QueryThreads


def _run(threads: QueryThreads) -> threading.Thread:
    """Run something, and return the thread that ran it."""
    found: list[threading.Thread] = []
    done = threading.Event()

    def run() -> None:
        found.append(threading.current_thread())
        done.set()

    threads.start(run)
    assert done.wait(60)
    return found[0]


def _settled(threads: QueryThreads, idle: int) -> None:
    """Wait until so many threads wait for work."""
    until = time.monotonic() + 10
    while len(threads._idle) != idle and time.monotonic() < until:
        time.sleep(0.001)
    assert len(threads._idle) == idle


def test_a_thread_runs_one_query_after_another() -> None:
    threads = QueryThreads()
    first = _run(threads)
    _settled(threads, 1)
    assert _run(threads) is first


def test_queries_side_by_side_have_a_thread_each() -> None:
    threads = QueryThreads()
    goes_on = threading.Event()

    def wait() -> None:
        goes_on.wait(60)

    threads.start(wait)
    assert _run(threads).is_alive()
    _settled(threads, 1)
    goes_on.set()
    _settled(threads, 2)


def test_a_thread_without_work_ends() -> None:
    threads = QueryThreads(idle_seconds=0.01)
    ended = _run(threads)
    ended.join(60)
    assert not ended.is_alive()
    assert threads._idle == []
    assert _run(threads) is not ended
