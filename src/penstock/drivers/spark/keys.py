"""The keys of one job: a process that holds them belongs to the job.

The driver makes two CURVE key pairs for each job, one for the job master and one that all its workers share. Spark
carries the workers' part to the workers inside their closure. Only a process that can read what Spark ships can
therefore join the job. Spark's own authentication and encryption guard the keys on their way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class WorkerKeys:
    """What a worker holds: the shared key pair of the workers, and the master's public key. Picklable."""

    master_public: bytes
    worker_public: bytes
    worker_secret: bytes = field(repr=False)


@dataclass(frozen=True)
class JobKeys:
    """What the driver holds: both key pairs. It never leaves the driver; its repr shows no secret."""

    master_public: bytes
    master_secret: bytes = field(repr=False)
    worker_public: bytes
    worker_secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> JobKeys:
        """New keys, for one job only."""
        master_public, master_secret = zmq.curve_keypair()
        worker_public, worker_secret = zmq.curve_keypair()
        return cls(master_public, master_secret, worker_public, worker_secret)

    def for_worker(self) -> WorkerKeys:
        """The part that a worker needs; without the master's secret."""
        return WorkerKeys(self.master_public, self.worker_public, self.worker_secret)

    def __reduce__(self) -> tuple[type, tuple[bytes, ...]]:
        raise TypeError("JobKeys stay in the driver; workers get for_worker()")
