from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.spark.session import CHATTER, JAVA_OPTIONS, LOG_SETTINGS, ChatterFilter, quiet_settings

LINES = [line + b" and more\n" for line in CHATTER] + [b"WARNING: your disk is full\n", b"\n", b"An error\n", b"W\n"]


@given(st.lists(st.sampled_from(LINES)), st.data())
def test_only_chatter_is_dropped_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(lines)
    chatter_filter, shown, at = ChatterFilter(), b"", 0
    while at < len(stream):
        step = data.draw(st.integers(1, 60))
        shown += chatter_filter.feed(stream[at : at + step])
        at += step
    assert shown == b"".join(line for line in lines if not line.startswith(CHATTER))


def test_a_line_under_way_is_not_held_back() -> None:
    assert ChatterFilter().feed(b"50 % done\r") == b"50 % done\r"


def test_the_users_own_settings_win(tmp_path: Path) -> None:
    settings = quiet_settings({"spark.ui.enabled": "true", JAVA_OPTIONS: "-Xmx2g"}, {})
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.ui.showConsoleProgress"] == "false"
    assert settings[JAVA_OPTIONS] == f"-Xmx2g -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    own = {JAVA_OPTIONS: "-Dlog4j2.configurationFile=mine"}
    assert quiet_settings(own, {})[JAVA_OPTIONS] == own[JAVA_OPTIONS]
    (tmp_path / "log4j2.properties").touch()
    assert JAVA_OPTIONS not in quiet_settings({}, {"SPARK_CONF_DIR": str(tmp_path)})


def test_the_log_settings_are_there() -> None:
    assert "rootLogger.level = error" in LOG_SETTINGS.read_text()
