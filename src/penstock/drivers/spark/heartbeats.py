"""A worker's heartbeats to the master: a thread with its own connection, so that no work can delay them.

Each heartbeat reports the resource usage of the process. To keep this report fresh, heartbeats are sent at least every
two seconds, whatever the interval is: it would cost more to signal whether anyone is looking than a heartbeat costs.

On the same connection the master asks about the state of the process, and gets an answer whatever the loop does
(`heartbeat_answers`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import zmq

from penstock.base.errors import WrongTimeError, WrongValueError
from penstock.core.protocol import Heartbeat, ProcessFigures
from penstock.drivers.process_figures import process_figures
from penstock.drivers.questions import Answer, Question, Refused
from penstock.drivers.spark.control_frames import HEARTBEAT_ROLE, PONG, identity
from penstock.drivers.spark.heartbeat_answers import HeartbeatAnswers
from penstock.drivers.spark.keys import WorkerKeys
from penstock.drivers.spark.loop_watch import LoopState
from penstock.drivers.spark.sockets import Context, Waker, connect_client
from penstock.drivers.spark.stalls import StallWatch
from penstock.wire.messages import MessageCodec

_log = logging.getLogger("penstock.spark")

UNSENT_HEARTBEATS_MAX = 4
#: How often (ms) a worker reports its resource usage, at least.
FIGURES_INTERVAL_MS = 2_000
#: Answers a question by calling its second argument, in any thread.
AnswerQuestion: TypeAlias = Callable[[Question, Callable[[Answer], None]], None]


def answer_nothing(question: Question, done: Callable[[Answer], None]) -> None:
    """Refuse to answer."""
    done(Refused("it answers no questions"))


class HeartbeatSender:
    """Sends heartbeats until closed, and remembers the time of the master's last answer."""

    def __init__(
        self, context: Context, keys: WorkerKeys, worker_id: str, master_address: str, max_frame_bytes: int
    ) -> None:
        self._context = context
        self._keys = keys
        self._worker_id = worker_id
        self._master_address = master_address
        self._max_frame_bytes = max_frame_bytes
        self._waker = Waker()
        self._stop = False
        self._has_figures = True
        self._thread: threading.Thread | None = None
        self._interval_ms = 0
        self._state: Callable[[], LoopState] = LoopState
        self._heard_at = time.monotonic()

    @property
    def silence_ms(self) -> int:
        """How long ago (ms) the master was last heard."""
        return int((time.monotonic() - self._heard_at) * 1000)

    def heard(self) -> None:
        """Note that the master was heard just now; any thread may call this."""
        self._heard_at = time.monotonic()

    def start(
        self,
        interval_ms: int,
        state: Callable[[], LoopState] = LoopState,
        answer: AnswerQuestion = answer_nothing,
        stall_ms: int | None = None,
    ) -> None:
        """Start, with a heartbeat every `interval_ms` or more often. `state` returns the worker's current activity.

        `answer` begins to answer a question and must return quickly. If no heartbeat can be sent for `stall_ms`, the
        master gets the stacks of this process, see `StallWatch`; with None, never.

        Raises:
            ValueError: if the interval is not positive.
            RuntimeError: if it was started before.
        """
        if interval_ms <= 0:
            raise WrongValueError(f"the heartbeat interval must be positive, not {interval_ms} ms")
        if self._thread is not None:
            raise WrongTimeError("heartbeats were started twice")
        self._interval_ms = min(interval_ms, FIGURES_INTERVAL_MS)
        self._state = state
        # At least two heartbeats must be missing; otherwise a process that works would send its stacks.
        self._stall_ms = None if stall_ms is None else max(stall_ms, 2 * self._interval_ms)
        self._answers = HeartbeatAnswers(answer, self._waker.wake, self._max_frame_bytes)
        self._thread = threading.Thread(target=self._run, name=f"penstock-heartbeats-{self._worker_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for the thread to end."""
        self._stop = True
        self._waker.wake()
        if self._thread is not None:
            self._thread.join()
        self._waker.close()

    def _run(self) -> None:
        dealer = self._context.socket(zmq.DEALER)
        stalls = self._watch_stalls()
        try:
            dealer.setsockopt(zmq.ROUTING_ID, identity(HEARTBEAT_ROLE, self._worker_id))
            connect_client(
                dealer,
                self._keys,
                self._keys.master_public,
                self._master_address,
                self._max_frame_bytes,
                UNSENT_HEARTBEATS_MAX,
            )
            self._beat(dealer, stalls)
        finally:
            dealer.close(linger=0)
            if stalls is not None:
                stalls.close()

    def _watch_stalls(self) -> StallWatch | None:
        if self._stall_ms is None:
            return None
        try:
            return StallWatch(self._keys, self._worker_id, self._master_address, self._max_frame_bytes, self._stall_ms)
        except (OSError, zmq.ZMQError) as error:
            _log.warning("worker %s cannot say where it is when its process is blocked: %s", self._worker_id, error)
            return None

    def _beat(self, dealer: zmq.Socket[bytes], stalls: StallWatch | None) -> None:
        codec: MessageCodec[Heartbeat] = MessageCodec(Heartbeat, self._max_frame_bytes)
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(self._waker, zmq.POLLIN)
        due = time.monotonic()
        while not self._stop:
            now = time.monotonic()
            if now >= due:
                due = now + self._interval_ms / 1000
                if stalls is not None:
                    stalls.rearm()
                # If the master takes no heartbeats, its silence reveals that.
                with contextlib.suppress(zmq.Again):
                    heartbeat = Heartbeat(self._worker_id, *self._state(), self._figures())
                    dealer.send(codec.encode(heartbeat, 0), zmq.NOBLOCK)
            is_full = self._send_answers(dealer)
            poller.register(dealer, zmq.POLLIN | zmq.POLLOUT if is_full else zmq.POLLIN)
            poller.poll(int(max(0.0, due - now) * 1000) + 1)
            self._waker.clear()
            self._take_answers(dealer)

    def _send_answers(self, dealer: zmq.Socket[bytes]) -> bool:
        """Send the pending answers; return True if some of them must wait."""
        frames = self._answers.frames
        while frames:
            try:
                dealer.send(frames[0], zmq.NOBLOCK)
            except zmq.Again:
                return True
            frames.popleft()
        return False

    def _figures(self) -> ProcessFigures | None:
        """Return the resource usage of the process; None if the system does not report it."""
        if not self._has_figures:
            return None
        try:
            return process_figures()
        except Exception as error:  # noqa: BLE001 - a worker that cannot be measured works all the same
            _log.warning("worker %s cannot tell what its process uses: %r", self._worker_id, error)
            self._has_figures = False
            return None

    def _take_answers(self, dealer: zmq.Socket[bytes]) -> None:
        with contextlib.suppress(zmq.Again):
            while frames := dealer.recv_multipart(zmq.NOBLOCK):
                self.heard()
                if frames != [PONG]:
                    self._answers.on_frame(frames[0])
