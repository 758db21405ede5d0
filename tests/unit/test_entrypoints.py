"""Functions as handlers: only those of modules that were admitted, by their dotted names."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from weft.worker.registry import Registry


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("admitted_app")
    source = """
import os
from os.path import join
async def work(x: int) -> int: return x
def plain(): ...
def _hidden(): ...
def positional(x, /): ...
class Class:
    def method(self): ...
"""
    exec(compile(source, "admitted_app.py", "exec"), made.__dict__)
    monkeypatch.setitem(sys.modules, "admitted_app", made)
    return made


def test_a_function_of_an_admitted_module_is_a_handler(module: ModuleType) -> None:
    registry = Registry()
    assert registry.get("admitted_app.work") is None
    registry.admit(["admitted_app"])
    handler = registry.get("admitted_app.work")
    assert handler is not None
    assert handler.function is module.work
    assert registry.get("admitted_app.plain") is not None


@pytest.mark.parametrize(
    "name",
    [
        *("admitted_app._hidden", "admitted_app.join", "admitted_app.os.getcwd", "admitted_app.Class"),
        *("admitted_app.Class.method", "admitted_app.nothing", "admitted_app", "os.getcwd", "admitted_apple.work", ""),
        *("admitted_app.positional", "admitted_app.__name__"),
    ],
)
def test_nothing_else_is(module: ModuleType, name: str) -> None:
    registry = Registry()
    registry.admit(["admitted_app"])
    assert registry.get(name) is None


def test_a_module_without_handlers_is_known_by_its_functions(module: ModuleType) -> None:
    registry = Registry()
    registry.admit(["admitted_app"])
    assert registry.names() == ["admitted_app.plain", "admitted_app.positional", "admitted_app.work"]
    registry.task(name="own")(module.plain)
    assert registry.names() == ["own"]


def test_a_module_that_is_not_loaded_is_not_imported() -> None:
    registry = Registry()
    registry.admit(["weft_never_loaded"])
    assert registry.get("weft_never_loaded.work") is None
    assert registry.names() == []
