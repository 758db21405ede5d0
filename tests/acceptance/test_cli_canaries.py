"""Secrets in the settings come out of no command: not in what it prints, nor in what it says goes wrong."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path

import pytest
from docs.pages.cli import commands, parameters
from typer.testing import CliRunner

from weft.cli.main import app
from weft.core.settings import Settings

PASSWORD, TOKEN, SIGNING = "canary-of-the-database", "weft_canary-of-the-token", "canary-of-callbacks-canary"
# They go on until they are stopped, or are somebody's session with a database.
_GO_ON = {"weft dev", "weft demo", "weft server", "weft db psql", "weft db start"}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """The environment of commands, with a secret in each place that takes one; nobody is at the addresses."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "WEFT_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    address = f"postgresql://weft:{PASSWORD}@127.0.0.1:1/weft"
    monkeypatch.setenv("WEFT_DATABASE_URL", address)
    monkeypatch.setenv("WEFT_LISTEN_URL", address)
    monkeypatch.setenv("WEFT_TOKEN", TOKEN)
    monkeypatch.setenv("WEFT_CALLBACK_SECRET", SIGNING)
    return monkeypatch


def _run(arguments: list[str]) -> str:
    found = CliRunner().invoke(app, arguments)
    return f"{found.output}\n{found.exception}\n{found.exception!r}"


def test_no_command_tells_a_secret(planted: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told, count = {}, 0
    for name, function in commands():
        if name in _GO_ON:
            continue
        arguments = name.split()[1:]
        for each in parameters(function):
            if each.is_required:
                arguments += ["1"] if each.is_argument else [each.shown.split()[0].split(",")[0], "1"]
        told[name] = _run(arguments)
        count += "127.0.0.1" in told[name]
    told["the log"] = "\n".join(logging.Formatter().format(each) for each in caplog.records)
    for name, text in told.items():
        for secret in (PASSWORD, TOKEN, SIGNING):
            assert secret not in text, name
    assert count > 40, "most have told where the database is, and so have come by its address"


def test_the_settings_in_force_tell_of_secrets_only_that_there_are_some(planted: pytest.MonkeyPatch) -> None:
    planted.setenv("WEFT_SERVER", "http://127.0.0.1:1")
    for arguments in (["config"], ["config", "--json"], ["context", "show"], ["context", "list"]):
        text = _run(arguments)
        for secret in (PASSWORD, TOKEN, SIGNING):
            assert secret not in text
    secrets = {field.name for field in fields(Settings) if not field.repr}
    assert {"token", "callback_secret", "database_url", "listen_url"} <= secrets
    settings = Settings.load()
    assert not any(secret in repr(settings) for secret in (PASSWORD, TOKEN, SIGNING))
