"""The hash of a handler's code tells what it does, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from weft.worker.code_versions import code_version
from weft.worker.registry import Registry

BASE = """
    def helper(x):
        return x + 1

    def handler(a, b=2):
        "Says something."
        kinds = {'x', 'y', 'z'}
        return [helper(each) for each in a if b in kinds]
"""


def defined(source: str, name: str = "handler", module: str = "given") -> Callable[..., Any]:
    scope: dict[str, Any] = {"__name__": module}
    exec(compile(textwrap.dedent(source), "somewhere.py", "exec", dont_inherit=True), scope)
    return scope[name]  # type: ignore[no-any-return]


def version(source: str) -> str:
    return code_version(defined(source))


def test_lines_comments_and_docstrings_make_no_difference() -> None:
    moved = "\n\n# moved\n" + textwrap.dedent(BASE).replace("Says something.", "Says something else.")
    assert version(moved) == version(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("each in a if", "each in a if not"),
        ("b=2", "b=3"),
        ("'z'", "'w'"),
        ("helper(each)", "helper(each, 1)"),
        ("x + 1", "x + 2"),
        ("(a, b=2)", "(a, *, b=2)"),
    ],
)
def test_what_a_handler_does_makes_a_difference(old: str, new: str) -> None:
    assert version(BASE.replace(old, new)) != version(BASE)


def test_it_is_the_same_in_every_process() -> None:
    program = (
        "import sys; scope = {'__name__': 'given'}; exec(sys.stdin.read(), scope);"
        "from weft.worker.code_versions import code_version; print(code_version(scope['handler']))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program], input=textwrap.dedent(BASE), capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert told == {version(BASE)}


def test_what_is_wrapped_counts_and_what_calls_itself_ends() -> None:
    wrapped = """
        import functools
        def shout(f):
            @functools.wraps(f)
            def inner(*args):
                return f(*args) * 2
            return inner
        @shout
        def handler(x):
            return handler(x - 1) if x else 0
    """
    assert version(wrapped) != version(wrapped.replace("else 0", "else 1"))
    assert version(wrapped) != version(wrapped.replace("* 2", "* 3"))


def test_a_default_that_only_this_process_has_counts_by_its_type() -> None:
    odd = "class Odd: pass\ndef handler(x=Odd()): return x"
    assert version(odd) == version(odd)


def test_nothing_of_a_stranger_is_called() -> None:
    class Stranger:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("asked")

    function = defined("def handler(): return STRANGER")
    function.__globals__["STRANGER"] = Stranger()  # type: ignore[attr-defined]
    assert code_version(function)


def test_functions_that_may_become_handlers_by_their_dotted_names_have_one() -> None:
    registry = Registry()
    registry.admit([__name__])
    known = registry.code_versions()
    assert known[f"{__name__}.version"] == code_version(version)
    assert f"{__name__}.code_version" not in known
    registry.get(f"{__name__}.version")
    assert registry.code_versions() == known


def test_what_is_the_engines_own_has_no_version() -> None:
    registry = Registry()
    registry.task(name="mine")(defined(BASE))
    registry.task(name="other")(defined("def handler(): return 1"))
    assert sorted(registry.code_versions()) == ["mine", "other"]
