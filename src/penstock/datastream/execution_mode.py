"""The execution mode of a program."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """The execution modes of Flink, and MICRO_BATCH, a Penstock extension that runs epoch by epoch.

    AUTOMATIC is BATCH if all sources are bounded, and STREAMING otherwise.

    Examples:
        >>> from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.set_runtime_mode(RuntimeExecutionMode.BATCH).from_elements("tea").collect()
        ['tea']
    """

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"
    MICRO_BATCH = "MICRO_BATCH"
