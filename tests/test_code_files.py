"""Code that crosses to another process keeps its file, whatever cloudpickle writes by itself."""

from __future__ import annotations

import pickle
from collections import ChainMap
from types import CodeType
from typing import Any

import cloudpickle
import pytest

from penstock.codecs import cloud, pickling


@pytest.fixture(params=["this release", "a release without file names"])
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "this release":
        return
    own = cloudpickle.Pickler.dispatch_table

    def without_file(code: CodeType) -> Any:
        make, parts = own[CodeType](code)
        return make, tuple("<dynamic-code>" if part == code.co_filename else part for part in parts)

    monkeypatch.setattr(cloudpickle.Pickler, "dispatch_table", ChainMap({CodeType: without_file}, own))


@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("dumps", [cloud.dumps, pickling.dumps])
def test_code_keeps_its_file(dumps: Any) -> None:
    def outer(number: int) -> Any:
        return lambda: 12 // number

    copy = pickle.loads(dumps(outer))
    assert copy(4)() == 3
    assert copy.__code__.co_filename == __file__
    assert copy(4).__code__.co_filename == __file__
