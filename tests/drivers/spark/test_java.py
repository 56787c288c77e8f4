from pathlib import Path

import pytest

from penstock.drivers.spark.session import JavaNotFoundError, find_java, java_version


def install(home: Path, version: str | None) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    named = install(tmp_path / "named", "21.0.2")
    on_path = install(tmp_path / "on_path", "17.0.1")
    assert find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}, []) == named


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = install(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}, []) == home


def test_one_that_is_too_old_is_passed_over_for_the_oldest_that_will_do(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "1.8.0_292")
    for version in ("25", "17.0.9", "11.0.1"):
        install(tmp_path / "jvm" / version, version)
    environ = {"JAVA_HOME": str(old), "PATH": ""}
    assert find_java(environ, [str(tmp_path / "jvm" / "*")]) == tmp_path / "jvm" / "17.0.9"


def test_without_a_release_file_java_itself_is_asked(tmp_path: Path) -> None:
    home = install(tmp_path / "jvm", "17.0.1")
    (home / "release").unlink()
    assert java_version(home) == 17


def test_the_error_says_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "1.8.0_292")
    with pytest.raises(JavaNotFoundError, match=r"only Java 8 in .*openjdk-17-jre-headless"):
        find_java({"JAVA_HOME": str(old), "PATH": ""}, [])
    with pytest.raises(JavaNotFoundError, match=r"none was found.*execution\.target: local"):
        find_java({"PATH": ""}, [])
