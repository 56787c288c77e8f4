"""The master of a job in batch execution: all tasks to their end, then all output or none (I1)."""

from __future__ import annotations

from penstock.core.master.master import StepwiseMaster
from penstock.core.master.steps import BeginCommits, Deliver, EndSinks, Last, RunTasks, Steps


class BatchMaster(StepwiseMaster):
    """See the module's text. What fails is run again by the tasks' own engine; a job as a whole is run once."""

    def work(self) -> Steps[None]:
        """All tasks; what they leave is delivered when every one has ended."""
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
