from pathlib import Path

from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.spark.session import PROMPT, SPARE_THREADS, session_settings, wanted_settings


def test_without_a_master_it_is_local_with_threads_for_every_slot_and_to_spare() -> None:
    settings, threads = session_settings({}, 40, {})
    assert threads == 40 + SPARE_THREADS
    assert settings["spark.master"] == f"local[{threads}]"
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_named_master_and_other_settings_pass_through() -> None:
    settings, threads = session_settings({"spark.master": "spark://host:7077", "spark.cores.max": "9"}, 4, {})
    assert threads is None
    assert settings["spark.master"] == "spark://host:7077"
    assert settings["spark.cores.max"] == "9"
    assert "spark.driver.host" not in settings


def test_a_master_named_by_spark_itself_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# spark.master local\nspark.master=yarn\n")
    for environ in (
        {"SPARK_CONF_DIR": str(tmp_path)},
        {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"},
        {"PYSPARK_GATEWAY_PORT": "1"},
    ):
        settings, threads = session_settings({}, 4, environ)
        assert "spark.master" not in settings
        assert threads is None


def test_spark_connect_gets_only_what_was_asked_for() -> None:
    settings, threads = session_settings({"spark.remote": "sc://host"}, 4, {})
    assert settings == {"spark.app.name": "penstock", "spark.remote": "sc://host"}
    assert threads is None


def test_what_an_environment_says_of_python_and_jars_are_settings_of_spark() -> None:
    """E1: for a session that the job starts."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_executable(python_exec="/opt/python/bin/python")
    env.add_jars("a.jar", "b.jar")
    settings, _ = session_settings(wanted_settings(env.get_configuration().to_dict()), 4, {})
    assert settings["spark.pyspark.python"] == "/opt/python/bin/python"
    assert settings["spark.jars"] == "a.jar,b.jar"


def test_a_session_of_ours_waits_for_no_place_and_tells_soon_of_an_executor_that_is_gone() -> None:
    """G8: an epoch that has lost an executor goes on after 2 s, not 15; the program's own settings win."""
    settings, _ = session_settings({"spark.master": "spark://host:7077", "spark.locality.wait": "1s"}, 4, {})
    assert settings["spark.shuffle.io.retryWait"] == PROMPT["spark.shuffle.io.retryWait"]
    assert settings["spark.locality.wait"] == "1s"


def test_what_spark_itself_says_stays(tmp_path: Path) -> None:
    key = "spark.locality.wait"
    (tmp_path / "spark-defaults.conf").write_text(f"{key} 5s\n")
    for environ in (
        {"SPARK_CONF_DIR": str(tmp_path)},
        {"PYSPARK_SUBMIT_ARGS": f"--conf {key}=5s pyspark-shell"},
        {"PYSPARK_GATEWAY_PORT": "1"},
    ):
        settings, _ = session_settings({}, 4, environ, lambda asked: asked == key)
        assert settings.keys() & PROMPT.keys() == PROMPT.keys() - {key}
