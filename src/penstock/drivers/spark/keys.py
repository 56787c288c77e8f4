"""The keys of one job: a process that holds them belongs to the job.

The driver makes two CURVE key pairs for each job, one for the job master and one that all its workers share. Spark
carries the workers' part to the workers inside their closure. So only a process that can read the data that Spark ships
can join the job. Spark's own authentication and encryption protect the keys in transit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class WorkerKeys:
    """The keys of a worker: the key pair shared by the workers, and the master's public key. Picklable."""

    master_public: bytes
    worker_public: bytes
    worker_secret: bytes = field(repr=False)


@dataclass(frozen=True)
class JobKeys:
    """The keys of the driver: both key pairs. They never leave the driver; the repr shows no secrets."""

    master_public: bytes
    master_secret: bytes = field(repr=False)
    worker_public: bytes
    worker_secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> JobKeys:
        """Generate new keys, for one job only."""
        master_public, master_secret = zmq.curve_keypair()
        worker_public, worker_secret = zmq.curve_keypair()
        return cls(master_public, master_secret, worker_public, worker_secret)

    def for_worker(self) -> WorkerKeys:
        """Return the keys that a worker needs, without the master's secret."""
        return WorkerKeys(self.master_public, self.worker_public, self.worker_secret)

    def __reduce__(self) -> tuple[type, tuple[bytes, ...]]:
        raise TypeError("JobKeys stay in the driver; workers get for_worker()")
