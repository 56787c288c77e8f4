"""The commands and manifests that are shown for clusters: Spark takes each option, Kubernetes each field (E8)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.clusters.network import ROOT
from tests.clusters.submit_parser import SubmitParser, submit_parser

from penstock.base.unknown_options import unknown_options
from penstock.cli.package_env import as_shown, submit_commands
from penstock.datastream import StreamExecutionEnvironment

MANIFESTS = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
PAGES = sorted(ROOT.glob("docs/*.md"))
KUBERNETES = "1.37"
PRINTED = submit_commands("environment.tar.gz", "program.py", "/venv/bin/python")


def shown(page: Path) -> list[list[str]]:
    """The commands of a page that begin with `spark-submit`."""
    text = page.read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^    (spark-submit .*)$", text, re.MULTILINE)]


SHOWN = [pytest.param(words, id=f"{page.name}-{words[2]}") for page in PAGES for words in shown(page)]
DOCUMENTS = [
    pytest.param(document, id=f"{path.stem}-{document['kind']}")
    for path in MANIFESTS
    for document in yaml.safe_load_all(path.read_text())
]


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (param.values[0] for param in DOCUMENTS if param.values[0]["kind"] == kind)  # type: ignore[index]
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def parser() -> Iterator[SubmitParser]:
    with submit_parser() as parser:
        yield parser


def test_the_pages_show_a_command_for_each_kind_of_cluster() -> None:
    masters = {param.values[0][2].partition(":")[0] for param in SHOWN}  # type: ignore[index]
    assert masters == {"spark", "yarn", "k8s"}


@pytest.mark.spark
@pytest.mark.parametrize("words", SHOWN)
def test_spark_takes_the_commands_of_the_pages(words: list[str], parser: SubmitParser) -> None:
    """E8: each option and each setting is one that this Spark has."""
    assert parser.problems(words[1:]) == []


@pytest.mark.spark
@pytest.mark.parametrize("kind", PRINTED)
def test_spark_takes_the_commands_that_are_printed(kind: str, parser: SubmitParser) -> None:
    """E8: those of `penstock package-env`, as a shell reads what is printed."""
    words = shlex.split("\n".join(as_shown(PRINTED[kind])).replace("\\\n", " "))
    assert words == PRINTED[kind]
    assert parser.problems(words[1:]) == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--master yarn --archive environment.tar.gz program.py", "Unrecognized option '--archive'"),
        ("--master yarn --conf spark.pyspark.pythons=python program.py", "no setting spark.pyspark.pythons"),
        ("--master yarn --deploy-mode there program.py", "deploy-mode must be either"),
        ("--master yarn", "primary resource"),
    ],
)
def test_what_spark_does_not_take(arguments: str, problem: str, parser: SubmitParser) -> None:
    (found,) = parser.problems(arguments.split())
    assert problem in found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_kubernetes_knows_each_field_of_the_manifests(document: dict[str, Any]) -> None:
    """E8: by the schema of its interface, with no field beside those that it has."""
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_a_field_that_kubernetes_does_not_have_is_found() -> None:
    driver = manifest("Deployment")
    driver["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        kubernetes_validate.validate(driver, KUBERNETES, strict=True)
    del driver["spec"]["template"]["spec"]["containers"][0]["volumeMount"]


def test_the_manifests_fit_together() -> None:
    """What one names the others have, and the executors' pods see the volume where the drivers do."""
    pod, settings = manifest("Deployment")["spec"]["template"]["spec"], manifest("ConfigMap")
    executor = yaml.safe_load(settings["data"]["executor.yaml"])
    kubernetes_validate.validate(executor, KUBERNETES, strict=True)
    claim = {"persistentVolumeClaim": {"claimName": manifest("PersistentVolumeClaim")["metadata"]["name"]}}
    places = [*pod["volumes"], *executor["spec"]["volumes"]]
    assert [place for place in places if place["name"] == "penstock"] == [{"name": "penstock", **claim}] * 2
    assert {"name": "settings", "configMap": {"name": settings["metadata"]["name"]}} in places
    account = manifest("ServiceAccount")["metadata"]["name"]
    binding = manifest("RoleBinding")
    assert pod["serviceAccountName"] == account == binding["subjects"][0]["name"]
    assert binding["roleRef"]["name"] == manifest("Role")["metadata"]["name"]
    (driver,), (worker,) = pod["containers"], executor["spec"]["containers"]
    assert {"name": "penstock", "mountPath": "/penstock"} in driver["volumeMounts"]
    assert worker["volumeMounts"] == [{"name": "penstock", "mountPath": "/penstock"}]


@pytest.mark.spark
def test_spark_takes_the_drivers_command_and_settings(parser: SubmitParser) -> None:
    """E8: the files that it names are in the config map; its variables are set."""
    (driver,), data = manifest("Deployment")["spec"]["template"]["spec"]["containers"], manifest("ConfigMap")["data"]
    assert parser.problems(driver["command"][1:]) == []
    variables = {variable["name"] for variable in driver["env"]}
    assert {*re.findall(r"\$\((\w+)\)", " ".join(driver["command"]))} <= variables
    settings = dict(line.split(maxsplit=1) for line in data["spark-defaults.conf"].splitlines())
    assert [key for key in settings if not parser.knows(key)] == []
    named = [driver["command"][-1], settings["spark.kubernetes.executor.podTemplateFile"]]
    assert {f"/settings/{name}" for name in data} >= {*named}


def test_the_program_of_the_manifests_can_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Penstock has its options; only its execution is left out."""
    plans = list[str]()
    monkeypatch.setattr(StreamExecutionEnvironment, "execute", lambda env, name: plans.append(env.get_execution_plan()))
    names: dict[str, Any] = {}
    exec(compile(manifest("ConfigMap")["data"]["program.py"], "program.py", "exec"), names)
    (plan,) = plans
    assert "Source: numbers" in plan
    assert unknown_options(names["SETTINGS"]) == {}
    assert unknown_options(["high-availability.types"])
    assert names["SETTINGS"]["execution.checkpointing.dir"].startswith("/penstock/")
