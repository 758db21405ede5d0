"""Logs on a worker's own machine go when nobody has written to them for longer than the retention."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from engine_scene import MakeClient, until

import weft
from weft.worker.logs import LogSweeper, remove_old_logs
from weft.worker.registry import Registry

RETENTION = timedelta(days=30)


def _written(path: Path, *, days_ago: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text", encoding="utf-8")
    moment = time.time() - timedelta(days=days_ago).total_seconds()
    os.utime(path, (moment, moment))
    return path


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_old_logs_are_removed_and_young_ones_stay(tmp_path: Path) -> None:
    for name, days in {"1": 31, "2": 300, "3": 29, "4": 0}.items():
        _written(tmp_path / f"{name}.log", days_ago=days)
    assert remove_old_logs(tmp_path, RETENTION) == 2
    assert _names(tmp_path) == {"3.log", "4.log"}
    assert remove_old_logs(tmp_path, RETENTION) == 0


def test_only_what_is_named_as_the_log_of_a_task_is_removed(tmp_path: Path) -> None:
    foreign = {"app.log", "12", "12.log.gz", "12.txt", "-12.log", "12 .log", ".log", "x12.log"}
    for name in (*foreign, "12.log"):
        _written(tmp_path / name, days_ago=300)
    _written(tmp_path / "13.log" / "14.log", days_ago=300)
    os.utime(tmp_path / "13.log", (0, 0))
    assert remove_old_logs(tmp_path, RETENTION) == 1
    assert _names(tmp_path) == foreign | {"13.log"}
    assert _names(tmp_path / "13.log") == {"14.log"}


def test_what_a_link_leads_to_is_not_removed(tmp_path: Path) -> None:
    """Somebody who may write to the folder of logs must not choose what else goes."""
    logs = tmp_path / "logs"
    logs.mkdir()
    elsewhere = _written(tmp_path / "elsewhere" / "12.log", days_ago=300)
    (logs / "12.log").symlink_to(elsewhere)
    (logs / "13.log").symlink_to(elsewhere.parent)
    remove_old_logs(logs, RETENTION)
    assert elsewhere.read_text(encoding="utf-8") == "text"


def test_a_folder_that_is_not_there_has_no_old_logs(tmp_path: Path) -> None:
    assert remove_old_logs(tmp_path / "nowhere", RETENTION) == 0


async def test_the_sweeper_looks_once_an_hour_however_much_it_found(tmp_path: Path) -> None:
    sweeper = LogSweeper(tmp_path, RETENTION)
    _written(tmp_path / "1.log", days_ago=31)
    found = await sweeper.run_once()
    assert (found, _names(tmp_path)) == (1, set())
    assert 3000 < sweeper.pause_before_next(found) < 4200


async def test_a_running_worker_removes_the_old_logs_of_its_machine(
    make_client: MakeClient, registry: Registry, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    old, young = _written(logs / "1.log", days_ago=3), _written(logs / "2.log", days_ago=1)
    client = await make_client(retention="2d", log_dir=logs)

    async def is_gone() -> bool:
        return not old.exists()

    async with weft.Worker(client=client, registry=registry):
        await until(is_gone)
    assert young.exists()
