"""Errors: each with a code of its own and a text that says what to do."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import weft
from weft.core import data_errors, errors, server_errors
from weft.core.errors import CallerError, OperatorError, WeftError
from weft.core.suggestions import did_you_mean


def _all_errors() -> list[type[WeftError]]:
    for module in pkgutil.walk_packages(weft.__path__, "weft."):
        if not module.name.endswith((".__main__", ".child", ".env")) and ".migrations." not in module.name:
            importlib.import_module(module.name)
    found, stack = [], [WeftError]
    while stack:
        kind = stack.pop()
        found.append(kind)
        stack += kind.__subclasses__()
    return found


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in _all_errors()]
    assert sorted(codes) == sorted(set(codes))
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


def test_each_error_says_itself_which_code_it_has() -> None:
    assert [kind.__name__ for kind in _all_errors() if "code" not in vars(kind)] == []


def test_each_error_maps_to_an_exit_code_and_a_status() -> None:
    for kind in _all_errors():
        assert 1 <= kind.exit_code <= 9
        assert 400 <= kind.http_status <= 599
        if issubclass(kind, CallerError):
            assert kind.http_status < 500
        if issubclass(kind, OperatorError):
            assert kind.exit_code == 3


def test_the_tree_at_the_top_of_the_module_is_the_tree() -> None:
    drawn = {
        word
        for line in (errors.__doc__ or "").splitlines()
        if line.startswith("    ")
        for word in line.replace("│", " ").replace("├──", " ").replace("└──", " ").split()[:1]
    }
    homes = (errors.__name__, server_errors.__name__, data_errors.__name__)
    own = {kind.__name__ for kind in _all_errors() if kind.__module__ in homes}
    assert drawn == own


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.InvalidInput("delay", "must not be negative"), "delay: must not be negative"),
        (errors.NotFound("task", 5), "there is no task 5; it may have been removed by retention, or never committed"),
        (
            errors.UnknownQueue("emial", ["email", "default"]),
            "queue: there is no queue 'emial'. Did you mean 'email'? "
            "Make it with `weft queues create emial`, or start a worker for it: "
            "`weft worker --app MODULE --queues emial`.",
        ),
        (
            errors.StateConflict("cancel", 5, "dead", ["running", "ready"]),
            "cannot cancel task 5: it is dead, and must be ready or running",
        ),
        (
            errors.LeaseLost(5),
            "the lease on task 5 is lost: its outcome was not written; "
            "leave the task to whoever holds it now, and roll back what belongs to it",
        ),
        (errors.WaitTimeout(5, 1.5), "task 5 did not end within 1.5 s: it goes on; see `weft tasks show 5`"),
        (errors.TaskFailed(5, "dead", {"type": "ValueError", "message": "no"}), "task 5 is dead: ValueError: no"),
        (errors.TaskFailed(5, "dead", {"type": "KeyError", "message": ""}, "error"), "task 5 is dead: KeyError"),
        (errors.TaskFailed(5, "dead", {"type": "", "message": "no"}), "task 5 is dead: no"),
        (errors.TaskFailed(5, "failed", None, "no_handler"), "task 5 is failed: no_handler"),
        (errors.TaskFailed(5, "cancelled"), "task 5 is cancelled"),
        (errors.SchemaOutdated(None, "0001"), "the database has no Weft schema yet: run `weft migrate upgrade`"),
        (
            errors.SchemaOutdated("0001", "0002"),
            "the database is at revision 0001 and this release needs 0002: run `weft migrate upgrade`",
        ),
        (
            errors.SchemaOutdated("0003", "0002"),
            "the database is at revision 0003, newer than this release, which needs 0002: upgrade Weft",
        ),
        (
            errors.SchemaOutdated("0003", "0003", "/a home"),
            "the database is at revision 0003 as it was in another build of Weft, before it was released: go back to "
            "the revision before it with `weft migrate downgrade` of that build, and then `weft migrate upgrade`; or, "
            "where nothing in it is needed, make it anew: `WEFT_HOME='/a home' weft db reset --yes` removes all data "
            "in it",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_says_what_is_wrong_and_what_to_do(error: WeftError, text: str) -> None:
    assert str(error) == text


def test_a_suggestion_comes_only_when_something_is_close() -> None:
    assert did_you_mean("retenton", ["retention", "org"]) == " Did you mean 'retention'?"
    assert did_you_mean("xyzzy", ["retention", "org"]) == ""
    assert did_you_mean("x", []) == ""
    assert did_you_mean("timeout", ["idle_timeout", "timeout_seconds"]) == " Did you mean 'timeout_seconds'?"
    assert did_you_mean("timeout", ["timeouts", "timeout_seconds", "timeout_policy"]) == " Did you mean 'timeouts'?"
