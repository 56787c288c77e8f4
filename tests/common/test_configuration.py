"""Configurations, options and what is made of them."""

import copy
import datetime
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base import options as o
from penstock.base.errors import ConfigurationError
from penstock.base.restart_strategy import read_restart_strategy
from penstock.common import ConfigOption, ConfigOptions, Configuration, Duration, ExecutionConfig, RestartStrategies


def test_values_convert_between_text_and_python():
    c = Configuration.from_dict(map={"i": "7", "b": "TRUE", "f": "1.5", "n": 3, "x": "00ff"})
    assert (c.get_integer("i", 0), c.get_boolean("b", False), c.get_float("f", 0.0)) == (7, True, 1.5)
    assert (c.get_string("n", ""), c.get_bytearray("x", b"")) == ("3", bytearray(b"\x00\xff"))
    assert c.get_integer("missing", 5) == 5
    assert c.get_string("missing", None) is None


def test_values_of_every_kind_are_set_and_read():
    c = Configuration().set_float("f", 1.5).set_bytearray("x", b"\x00\xff").set_boolean("b", True)
    assert (c.get_float("f", 0.0), c.get_boolean("b", False)) == (1.5, True)
    assert c.get_bytearray("x", None) == bytearray(b"\x00\xff")
    assert Configuration.from_dict(c.to_dict()).get_bytearray("x", None) == bytearray(b"\x00\xff")
    for setter, value in (("set_float", "fast"), ("set_bytearray", 7), ("set_integer", 1.5), ("set_boolean", "maybe")):
        with pytest.raises(ConfigurationError, match=r"option k .*"):
            getattr(c, setter)("k", value)
    assert not c.contains_key("k")


def test_a_bad_value_is_named_with_its_key():
    c = Configuration().set_string("parallelism.default", "many")
    for read in (lambda: c.read(o.PARALLELISM), lambda: c.get_integer("parallelism.default", 1)):
        with pytest.raises(ConfigurationError, match=r"parallelism\.default .*'many'"):
            read()
    with pytest.raises(ConfigurationError, match=r"execution\.target.*write one of spark, local"):
        Configuration().set_string("execution.target", "yarn").read(o.EXECUTION_TARGET)
    with pytest.raises(ConfigurationError, match="at least 1"):
        Configuration().write(o.PARALLELISM, 0)


def test_entries_are_added_removed_and_listed():
    c = Configuration().set_integer("a", 1)
    c.add_all(Configuration().set_boolean("b", False), "p.")
    assert c.key_set() == {"a", "p.b"}
    assert c.to_dict() == {"a": "1", "p.b": "false"}
    assert c.remove_config("p.b")
    assert not c.remove_config("p.b")
    assert not c.contains_key("p.b")
    target: dict[str, str] = {}
    c.add_all_to_dict(target_dict=target)
    assert target == {"a": "1"}


def test_a_copy_is_equal_and_independent():
    c = Configuration().set_integer("a", 1)
    for other in (Configuration(c), copy.deepcopy(c), pickle.loads(pickle.dumps(c))):
        assert other == c
        other.set_integer("a", 2)
        assert other != c


@given(st.dictionaries(st.text(), st.text()))
def test_a_map_reads_back_from_text(parameters):
    c = ExecutionConfig().set_global_job_parameters(parameters)._configuration
    assert ExecutionConfig(Configuration.from_dict(c.to_dict())).get_global_job_parameters() == parameters


@pytest.mark.parametrize(
    ("text", "items"),
    [("a;b", ["a", "b"]), ("[a, 'b, c']", ["a", "b, c"]), ("", []), ("[]", []), ("'it''s';x", ["it's", "x"])],
)
def test_lists_are_split(text, items):
    assert Configuration.parse_list_value(text) == items


@pytest.mark.parametrize("option", o.REGISTRY.values(), ids=str)
def test_every_option_is_described_and_its_default_is_valid(option):
    assert option.description().endswith(".")
    default = option.default_value()
    assert Configuration().read(option) == default
    if default is not None:
        assert option.convert(default) == default


def test_options_read_flinks_forms():
    c = Configuration.from_dict(
        {
            "execution.checkpointing.interval": "10 s",
            "penstock.network.max-frame-bytes": "1 mb",
            "execution.runtime-mode": "batch",
        }
    )
    assert c.read(o.CHECKPOINTING_INTERVAL_MS) == 10_000
    assert c.read(o.NETWORK_FRAME_BYTES_MAX) == 1 << 20
    assert c.read(o.RUNTIME_MODE) == "BATCH"
    assert c.write(o.HEARTBEAT_INTERVAL_MS, datetime.timedelta(seconds=2)).read(o.HEARTBEAT_INTERVAL_MS) == 2_000


def test_the_defaults_are_the_documented_ones():
    c = Configuration()
    assert c.read(o.PARALLELISM) == 1
    assert c.read(o.MAX_PARALLELISM) == 128
    assert c.read(o.EXECUTION_TARGET) == "spark"
    assert c.read(o.CHECKPOINTING_INTERVAL_MS) is None
    assert c.read(o.CHECKPOINTING_INLINE_BYTES) == 20_480
    assert c.read(o.NETWORK_FRAME_BYTES_MAX) == 67_108_864


def test_users_build_their_own_options():
    option = ConfigOptions.key("my.size").int_type().default_value(5).with_description("Mine.")
    assert Configuration().read(option) == 5
    assert Configuration().set_string("my.size", "6").read(option) == 6
    assert ConfigOptions.key("k").double_type().no_default_value().default_value() is None
    assert not ConfigOptions.key("k").memory_type().no_default_value().has_default_value()
    with pytest.raises(ConfigurationError, match="boolean"):
        ConfigOptions.key("k").boolean_type().default_value("maybe")  # type: ignore[arg-type]


def test_an_option_reads_values_of_its_type():
    builder = ConfigOptions.key("k")
    assert isinstance(builder, ConfigOptions.OptionBuilder)
    assert isinstance(builder.int_type(), ConfigOptions.TypedConfigOptionBuilder)
    cases: tuple[tuple[Any, str, Any], ...] = (
        (builder.boolean_type(), "true", True),
        (builder.int_type(), "7", 7),
        (builder.long_type(), str(2**40), 2**40),
        (builder.float_type(), "0.5", 0.5),
        (builder.double_type(), "1e-3", 0.001),
        (builder.string_type(), "7", "7"),
        (builder.duration_type(), "2 s", 2_000),
    )
    for typed, text, value in cases:
        option = typed.default_value(value)
        assert isinstance(option, ConfigOption)
        assert (option.key(), option.default_value(), option.has_default_value()) == ("k", value, True)
        assert Configuration().set_string("k", text).read(option) == value
        assert Configuration().read(typed.no_default_value()) is None


@pytest.mark.parametrize(
    "strategy",
    [
        RestartStrategies.no_restart(),
        RestartStrategies.fixed_delay_restart(3, Duration.of_seconds(10)),
        RestartStrategies.failure_rate_restart(3, datetime.timedelta(minutes=5), 100),
        RestartStrategies.exponential_delay_restart(10, 1_000, 2.0, 60_000, 0.2, 8),
    ],
)
def test_a_restart_strategy_reads_back_from_a_configuration(strategy):
    c = Configuration()
    strategy.apply_to(c)
    assert read_restart_strategy(Configuration.from_dict(c.to_dict())) == strategy
    RestartStrategies.fall_back_restart().apply_to(c)
    assert read_restart_strategy(c) == strategy
    assert strategy.get_description()


def test_without_a_strategy_only_a_job_with_checkpoints_restarts():
    assert read_restart_strategy(Configuration()) == RestartStrategies.no_restart()
    checkpointed = Configuration().write(o.CHECKPOINTING_INTERVAL_MS, "1 s")
    assert read_restart_strategy(checkpointed) == RestartStrategies.exponential_delay_restart()


def test_a_bad_strategy_writes_nothing():
    c = Configuration()
    with pytest.raises(ConfigurationError):
        RestartStrategies.fixed_delay_restart(-1, 0).apply_to(c)
    assert c.key_set() == set()


def test_the_execution_config_is_a_view():
    c = Configuration()
    e = ExecutionConfig(c)
    assert e.get_parallelism() == ExecutionConfig.PARALLELISM_DEFAULT
    assert e.set_parallelism(4).set_parallelism(ExecutionConfig.PARALLELISM_UNKNOWN).get_parallelism() == 4
    assert c.read(o.PARALLELISM) == 4
    assert e.set_parallelism(-1).get_parallelism() == -1
    assert e.get_max_parallelism() == -1
    assert e.set_max_parallelism(64).get_max_parallelism() == 64
    assert e.set_auto_watermark_interval(50).get_auto_watermark_interval() == 50
    assert not e.disable_auto_generated_uids().has_auto_generated_uids_enabled()
    assert e.enable_auto_generated_uids().has_auto_generated_uids_enabled()
