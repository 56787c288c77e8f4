"""Opens a task: creates contexts for its operators, and restores their initial state.

State is restored before any operator runs: keyed and operator state in the backends, records in flight in their
original channels. Records in flight of channels that no longer exist are partitioned again.
"""

from __future__ import annotations

from typing import Any

from penstock.core.checkpoint.channel_states import ChannelState
from penstock.core.operators.context import OperatorContext
from penstock.core.ports import StateStorage
from penstock.core.protocol import DeployTask
from penstock.core.records import EndOfOutputChannelState
from penstock.core.task.channels.in_flight import partition_anew, recover_channel
from penstock.core.task.channels.input_gate import InputGate
from penstock.core.task.channels.result_partition import ResultPartition
from penstock.core.task.operator_chain import OperatorChain
from penstock.core.task.snapshots import TaskSnapshots
from penstock.core.task.state_transfer import restore_operator
from penstock.state.snapshot import read_operator


class Opening:
    """Restores a task from the state that its deployment names."""

    def __init__(
        self,
        deployment: DeployTask,
        storage: StateStorage,
        snapshots: TaskSnapshots,
        gate: InputGate,
        partitions: dict[int, ResultPartition],
    ) -> None:
        self._deployment = deployment
        self._storage = storage
        self._snapshots = snapshots
        self._gate = gate
        self._partitions = partitions

    def restore(self, chain: OperatorChain) -> None:
        """Load the state of all operators and the records in flight from the checkpoint that the task starts from."""
        deployment = self._deployment
        for context in chain.contexts:
            context.operator_state.restored_checkpoint_id = deployment.restored_checkpoint_id
            context.forerunners = deployment.forerunners
            self._restore_operator(context)
        for edge, files in deployment.taken_over:
            for file in files:
                partition_anew(read_operator(self._storage.read(file)), self._partitions[edge])
        for edge in deployment.sends_channel_state:
            self._partitions[edge].broadcast(EndOfOutputChannelState())

    def _restore_operator(self, context: OperatorContext) -> None:
        restored = self._deployment.restored.get(context.operator_id)
        if restored is not None:
            snapshots = self._snapshots
            histories = snapshots.histories if self._deployment.builds_on_restored else None
            restore_operator(restored, context, self._storage, snapshots.key_groups, histories, self._recover_channel)

    def _recover_channel(self, channel: ChannelState, items: list[Any]) -> None:
        recover_channel(channel, items, self._gate, self._partitions)
