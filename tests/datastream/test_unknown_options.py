"""Option keys that nobody knows are told when a program is executed, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.said import said

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.datastream import StreamExecutionEnvironment


def environment(**options: str) -> StreamExecutionEnvironment:
    """Options with `__` in the place of dots and `_` in the place of hyphens."""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    configuration = Configuration.from_dict({"execution.target": "local", **named})
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def warnings_of(env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture) -> list[str]:
    env.from_collection([1]).print()
    env.execute()
    return said(caplog)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("execution__checkpointing__intervall", "execution.checkpointing.interval"),
        ("execution__runtimemode", "execution.runtime-mode"),
        ("state__backend__typ", "state.backend.type"),
        ("parallelism__defualt", "parallelism.default"),
        ("penstock__source__batch_record", "penstock.source.batch-records"),
        ("restart_strategy__fixed_delay__atempts", "restart-strategy.fixed-delay.attempts"),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_one(key: str, nearest: str, caplog: pytest.LogCaptureFixture) -> None:
    """E1: a typing error in a key is not ignored in silence."""
    (warning,) = warnings_of(environment(**{key: "1"}), caplog)
    assert key.replace("__", ".").replace("_", "-") in warning
    assert f"did you mean {nearest}?" in warning


@pytest.mark.parametrize(
    ("key", "heeded"),
    [
        ("state__backend", "state.backend.type"),
        ("state__checkpoints__dir", "execution.checkpointing.dir"),
        ("state__savepoints__dir", "execution.checkpointing.savepoint-dir"),
        ("execution__savepoint__path", "execution.state-recovery.path"),
        ("restart_strategy", "restart-strategy.type"),
    ],
)
def test_an_older_key_of_flinks_is_told_with_the_one_that_counts(
    key: str, heeded: str, caplog: pytest.LogCaptureFixture
) -> None:
    """E1: no guess from the letters, but the option that took the key's place."""
    (warning,) = warnings_of(environment(**{key: "x"}), caplog)
    assert f"an older name and has no effect: set {heeded} instead" in warning


@pytest.mark.parametrize(
    "key",
    [
        "taskmanager__memory__process__size",
        "python__fn_execution__bundle__size",
        "pipeline__object_reuse",
        "rest__connection_timeout",
    ],
)
def test_an_option_of_flinks_without_effect_is_told_as_such(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """E1: it is written rightly, and does nothing here."""
    (warning,) = warnings_of(environment(**{key: "1"}), caplog)
    assert "exists in Flink but not in Penstock" in warning
    assert "did you mean" not in warning


def test_keys_of_the_users_own_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """E1: other prefixes belong to the program, and travel with it."""
    assert warnings_of(environment(my__threshold="7", app="x", sparkling="1", spark__sql__shuffle="2"), caplog) == []


def test_each_key_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """E1: an environment that runs many programs says it with the first."""
    env = environment(execution__bufer_timeout="1")
    assert len(warnings_of(env, caplog)) == 1
    assert len(warnings_of(env, caplog)) == 1


def test_with_strict_configuration_unknown_keys_are_refused() -> None:
    """E1: `penstock.configuration.strict` makes an error of the warning, ahead of anything that runs; all at once."""
    env = environment(
        penstock__configuration__strict="true", execution__cheese="1", rest__retry__delay="1", my__own="2"
    )
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError) as refusal:
        env.execute()
    assert "execution.cheese" in str(refusal.value)
    assert "rest.retry.delay" in str(refusal.value)
    assert "my.own" not in str(refusal.value)


def test_collecting_says_it_too(caplog: pytest.LogCaptureFixture) -> None:
    """E1: however the program is run."""
    stream: Any = environment(execution__cheese="1").from_collection([1])
    assert stream.collect() == [1]
    assert [r for r in caplog.records if "execution.cheese" in r.getMessage()]
