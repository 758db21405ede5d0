"""Settings: arguments over the environment over a file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import weft
from weft.core.errors import DatabaseUnavailable, InvalidSetting
from weft.core.settings import Settings, parse_count, parse_duration, parse_flag, parse_size
from weft.db.address import redacted, split_password
from weft.db.database import Database


def test_arguments_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "weft.toml"
    file.write_text('org = "file"\nactor = "file"\nretention = "1d"\nworker_concurrency = 7\nlog_upload = true\n')
    environ = {"WEFT_CONFIG": str(file), "WEFT_ACTOR": "environ", "WEFT_RETENTION": "2d"}
    settings = Settings.load(environ=environ, retention="3d")
    assert (settings.org, settings.actor, settings.retention) == ("file", "environ", timedelta(days=3))
    assert (settings.worker_concurrency, settings.log_upload) == (7, True)
    assert Settings.load(environ=environ, retention=None).retention == timedelta(days=2)


def test_a_file_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weft.toml").write_text('org = "here"\n')
    monkeypatch.chdir(tmp_path)
    assert Settings.load(environ={}).org == "here"


def test_without_anything_there_are_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(environ={"PATH": "/bin", "HOME": "/root", "WEFT_ORG": ""})
    assert settings == Settings()
    assert (settings.retention, settings.worker_task_timeout) == (timedelta(days=30), timedelta(hours=1))
    assert (settings.worker_max_attempts, settings.inline_limit, settings.value_limit) == (3, 262144, 67108864)


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Settings().org = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("environ", "arguments", "message"),
    [
        ({"WEFT_RETENTON": "1d"}, {}, "setting WEFT_RETENTON: there is no such setting. Did you mean 'WEFT_RETENTION'"),
        ({"WEFT_XYZZY": "1"}, {}, "setting WEFT_XYZZY: there is no such setting."),
        ({}, {"actr": "x"}, "setting actr: there is no such setting. Did you mean 'actor'?"),
        ({"WEFT_RETENTION": "soon"}, {}, "setting WEFT_RETENTION: 'soon' is not a duration"),
        ({"WEFT_RETENTION": "-1d"}, {}, "setting WEFT_RETENTION: '-1d' is not a duration"),
        ({"WEFT_WORKER_CONCURRENCY": "0"}, {}, "setting WEFT_WORKER_CONCURRENCY: '0' is not a whole number above zero"),
        ({"WEFT_WORKER_CONCURRENCY": "many"}, {}, "setting WEFT_WORKER_CONCURRENCY: 'many' is not a whole number"),
        ({"WEFT_INLINE_LIMIT": "1 furlong"}, {}, "setting WEFT_INLINE_LIMIT: '1 furlong' is not a size"),
        ({"WEFT_PROFILE": "turbo"}, {}, "setting WEFT_PROFILE: 'turbo' is not one of standard, fast"),
        ({"WEFT_POOLER": "session"}, {}, "setting WEFT_POOLER: 'session' is not one of none, transaction"),
        ({"WEFT_LOG_UPLOAD": "perhaps"}, {}, "setting WEFT_LOG_UPLOAD: 'perhaps' is neither true nor false"),
        ({"WEFT_WORKER_CONCURRENCY": "2147483648"}, {}, "setting WEFT_WORKER_CONCURRENCY: must be at most 2147483647"),
        ({"WEFT_WORKER_MAX_ATTEMPTS": "40000"}, {}, "setting WEFT_WORKER_MAX_ATTEMPTS: "),
        ({"WEFT_WORKER_HEARTBEAT_INTERVAL": "0"}, {}, "setting WEFT_WORKER_HEARTBEAT_INTERVAL: "),
        ({"WEFT_WORKER_TIMEOUT": "0s"}, {}, "setting WEFT_WORKER_TIMEOUT: "),
        ({"WEFT_WORKER_POLL_INTERVAL": "0"}, {}, "setting WEFT_WORKER_POLL_INTERVAL: "),
        ({"WEFT_CONFIG": "/nowhere/weft.toml"}, {}, "setting WEFT_CONFIG: there is no file /nowhere/weft.toml"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_the_name_that_was_used(
    environ: dict[str, str], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Settings.load(environ=environ, **arguments)
    assert str(caught.value).startswith(message)


def test_a_lease_shorter_than_two_heartbeats_is_refused() -> None:
    """Such a worker would be lost between any two heartbeats."""
    with pytest.raises(InvalidSetting, match=r"worker_timeout|WEFT_WORKER_TIMEOUT"):
        Settings.load(environ={}, worker_timeout="2s", worker_heartbeat_interval="3s")
    with pytest.raises(InvalidSetting, match=r"WEFT_ORPHAN_THRESHOLD: .* orchestrators would be lost"):
        Settings.load(environ={}, orphan_threshold="3s")
    assert Settings(orphan_threshold=timedelta(seconds=4)).for_orchestrator.lease_time == timedelta(seconds=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("org = ", "not valid TOML"),
        ('orgg = "x"', "setting orgg in "),
        ('retention = "soon"', "setting retention in "),
        ("[weft]\norg = 'x'", "setting weft in "),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "weft.toml"
    file.write_text(text)
    with pytest.raises(InvalidSetting) as caught:
        Settings.load(environ={"WEFT_CONFIG": str(file)})
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_the_postgres_variables_make_a_url_that_survives_odd_characters() -> None:
    environ = {
        "POSTGRES_HOST": "db.example", "POSTGRES_PORT": "6432", "POSTGRES_USER": "a@b", "POSTGRES_PASSWORD": "p/w:d @%",
        "POSTGRES_DB": "my db",
    }  # fmt: skip
    assert (
        Settings.load(environ=environ).database_url == "postgresql://a%40b:p%2Fw%3Ad%20%40%25@db.example:6432/my%20db"
    )
    assert Settings.load(environ={"POSTGRES_HOST": "h"}).database_url == "postgresql://postgres@h:5432/postgres"
    assert Settings.load(environ={"POSTGRES_USER": "u", "POSTGRES_DB": "d"}).database_url is None
    both = {**environ, "WEFT_DATABASE_URL": "postgresql://other/x"}
    assert Settings.load(environ=both).database_url == "postgresql://other/x"
    assert Settings.load(environ=environ, database_url="postgresql://mine/x").database_url == "postgresql://mine/x"


def test_the_fast_profile_notices_a_dead_worker_sooner() -> None:
    standard, fast = Settings(), Settings.load(environ={}, profile="fast")
    assert (standard.heartbeat_interval, standard.lease_time) == (timedelta(seconds=3), timedelta(seconds=10))
    assert (fast.heartbeat_interval, fast.lease_time) == (timedelta(seconds=0.5), timedelta(seconds=2))
    own = Settings.load(environ={"WEFT_WORKER_HEARTBEAT_INTERVAL": "1s", "WEFT_WORKER_TIMEOUT": "5s"}, profile="fast")
    assert (own.heartbeat_interval, own.lease_time) == (timedelta(seconds=1), timedelta(seconds=5))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30d", 2592000), ("1.5h", 5400), ("10m", 600), ("3s", 3), ("250ms", 0.25), ("2w", 1209600), ("7", 7), (7, 7),
        (" 3 s ", 3),
    ],
)  # fmt: skip
def test_durations_are_read(text: object, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert parse_duration(timedelta(seconds=seconds)) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "1 2s", "1y", "1e3", "nan", "inf", None, "-5", "9" * 400, True])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|out of range|too long"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("262144", 262144), ("256KiB", 262144), ("64mib", 67108864), ("1 GiB", 2**30), (5, 5), ("0", 0)]
)
def test_sizes_are_read(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "1.5MiB", "-1", "1kb", "1 TiB", None])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_flags_and_counts_are_read() -> None:
    assert [parse_flag(word) for word in ("1", "TRUE", "yes", "On", True)] == [True] * 5
    assert [parse_flag(word) for word in ("0", "false", "No", "off", False)] == [False] * 5
    assert (parse_count("12"), parse_count(3)) == (12, 3)
    for wrong in ("0", "-1", "1.5", "", "x", True, None, "12345678901"):
        with pytest.raises(ValueError, match="whole number"):
            parse_count(wrong)


# --- secrets ---

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/db",
        f"postgresql://ann:{SECRET}@/db?host=/nowhere",
        f"postgresql://127.0.0.1:1/db?user=ann&password={SECRET}",
        f"postgresql://127.0.0.1:1/db?PASSWORD={SECRET}&user=ann",
        f"postgresql://:{SECRET}@127.0.0.1:1/db",
    ],
)
async def test_a_password_never_stands_in_an_error(url: str) -> None:
    assert SECRET not in redacted(url)
    with pytest.raises(DatabaseUnavailable) as caught:
        await Database.open(Settings.load(environ={}, database_url=url))
    assert SECRET not in str(caught.value)
    assert "127.0.0.1" in str(caught.value) or "nowhere" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:pa/{SECRET}@127.0.0.1:1/db",
        f"postgresql://ann:[{SECRET}@127.0.0.1:1/db",
        f"postgresql://ann:{SECRET}@127.0.0.1:port/db",
        f"postgresql://ann:{SECRET}@127.0.0.1:99999999/db",
        f"postgresql://ann:#{SECRET}@127.0.0.1:1/db",
        f"postgresql://ann:?{SECRET}@127.0.0.1:1/db",
        f"postgresql:ann:{SECRET}@127.0.0.1:1/db",
        f"mysql://ann:{SECRET}@127.0.0.1:1/db",
        f"postgresql://ann:x{SECRET}@a:b@127.0.0.1:1/db",
        SECRET,
    ],
)
async def test_an_address_that_cannot_be_read_is_a_setting_that_is_wrong_and_not_repeated(url: str) -> None:
    with pytest.raises((InvalidSetting, DatabaseUnavailable)) as caught:
        await Database.open(Settings.load(environ={}, database_url=url))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("/run/my sockets", "postgresql://postgres@/postgres?host=/run/my%20sockets&port=6432"),
        ("a,b", "postgresql://postgres@a:6432,b:6432/postgres"),
        ("::1", "postgresql://postgres@[::1]:6432/postgres"),
    ],
)
def test_a_host_variable_may_be_the_folder_of_a_socket_or_several_hosts(host: str, url: str) -> None:
    settings = Settings.load(environ={"POSTGRES_HOST": host, "POSTGRES_PORT": "6432"})
    assert settings.database_url == url
    assert Database(url, settings).url == url


def test_a_wrong_port_variable_is_told_without_the_password() -> None:
    environ = {"POSTGRES_HOST": "127.0.0.1", "POSTGRES_PORT": "five", "POSTGRES_PASSWORD": SECRET}
    with pytest.raises(InvalidSetting, match="POSTGRES_PORT") as caught:
        Settings.load(environ=environ)
    assert SECRET not in str(caught.value)


@given(st.text(min_size=1).filter(lambda text: text not in "postgresql://u:***@h/d"))
def test_a_quoted_password_never_survives_redaction(password: str) -> None:
    from urllib.parse import quote

    try:
        quoted = quote(password, safe="")
    except UnicodeEncodeError:
        return
    url = f"postgresql://u:{quoted}@h/d"
    assert redacted(url) == "postgresql://u@h/d"
    assert split_password(url) == ("postgresql://u@h/d", password)


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=8))
def test_a_password_with_unquoted_signs_never_survives_redaction(password: str) -> None:
    # A password that stands elsewhere in the address as well is no secret.
    assume(password not in "postgresql://u@example.com:1/shop")
    assert password not in redacted(f"postgresql://u:{password}@example.com:1/shop")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@a:1,b:2/d?target_session_attrs=read-write", "u@a:1,b:2/d?target_session_attrs=read-write"),
        ("postgresql://u:p@[::1]:5,[::2]/d", "u@[::1]:5,[::2]/d"),
        ("postgresql://u:p@/d?host=/a,/b&port=1,2", "u@/d?host=/a,/b&port=1,2"),
        ("postgresql://h/d?sslpassword=x&passfile=/f&sslmode=require", "h/d?passfile=/f&sslmode=require"),
        ("postgresql://h/d?options=-c%20my.password%3Dx", "h/d"),
        ("postgresql://h/d?user=ann%40tenant", "h/d?user=ann%40tenant"),
    ],
)
def test_what_is_no_secret_is_shown(url: str, shown: str) -> None:
    assert redacted(url) == f"postgresql://{shown}"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("a:1,b:x/d", "a port is a number from 1 to 65535"),
        ("a,,b/d", "one of its hosts is empty"),
        ("/d?host=/a,/b,/c&port=1,2", "it has another number of ports than of hosts"),
        ("h/d@e", "an @ behind the host is written as %40"),
        ("h/d?user=ann@tenant", "an @ behind the host is written as %40"),
    ],
)
def test_an_address_is_refused_with_the_reason(place: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        Database(f"postgresql://{place}", Settings())


def test_settings_do_not_show_a_password_when_printed() -> None:
    settings = Settings.load(
        environ={}, database_url=f"postgresql://ann:{SECRET}@h/d", listen_url=f"postgresql://ann:{SECRET}@h/d"
    )
    assert SECRET not in repr(settings)
    assert SECRET not in repr(weft.Client(settings=settings))
