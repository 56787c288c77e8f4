"""The master of a job in batch execution: runs all tasks to their end, then delivers all output or none (I1)."""

from __future__ import annotations

from penstock.core.master.master import StepwiseMaster
from penstock.core.master.steps import BeginCommits, Deliver, EndSinks, Last, RunTasks, Steps


class BatchMaster(StepwiseMaster):
    """See the module docstring. The engine that runs the tasks retries failed ones; the job as a whole runs once."""

    def work(self) -> Steps[None]:
        """Run all tasks, and deliver their output when every one has ended."""
        try:
            yield BeginCommits()
            last: list[Last] = yield RunTasks()
            yield Deliver(tuple(last))
        except GeneratorExit:
            raise
        except BaseException:
            yield EndSinks()
            raise
        yield EndSinks()
