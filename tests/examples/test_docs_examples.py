"""Every file that the documentation shows is run here, on a real database, and does what the page says."""

from __future__ import annotations

import asyncio
import configparser
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncpg
import pytest

import warm
from granted import grant, take_back
from weft.core.settings import Settings

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "docs"
TIMEOUT = 100

# Each script with what it must print, in this order.
SCRIPTS = {
    "first.py": ["Hello, Ada!"],
    "tutorial.py": [
        "True False True",
        "is dead: FileNotFoundError: [Errno 2]",
        "dead 2 ['failed', 'failed']",
        "report:total error",
        "42.5",
    ],
    "own_transaction.py": [
        *("with_asyncpg 1", "with_psycopg 2", "with_sqlalchemy 3", "with_a_sync_connection 4"),
        "rolled back: no task",
    ],
    "complete_in.py": ["15"],
    "retries.py": [
        *("failed NonRetryable: customer 7 was deleted", "dead ValueError: no luck", "e-1 0"),
        *("dead always:fails error", "removed 0"),
    ],
    "limits.py": ["default None 3", "acme 2 of 2", "render 4 None", "{'render': 4, 'acme': 2} [{}, {}]"],
    "idempotency.py": ["True False True", "[False, True, False]", "weft-task-"],
    "large_values.py": ["20000", "params: has 2000011 bytes, and may have 1048576"],
    "task_logs.py": [""],
    "long_tasks.py": [
        *("dead timeout", "dead timeout", "3", "told ada of 100", "goes on after download"),
        "cancelled",
    ],
    "datasets.py": [
        "imported 3",
        "total 15.0",
        "imported 3",
        "total 15.0",
        "daily 2",
        "orders 6 ['id', 'day', 'price']",
    ],
    "lineage.py": ["['orders.price', 'largest.worth', 'totals.total'] False"],
    "live_dags.py": [
        "1 True [('orders', 'new'), ('totals', 'new')]",
        "[('2026-11-14', 12.5, 'EUR'), ('2026-11-15', 5.0, 'EUR')]",
        "[('orders', 'unchanged', ()), ('totals', 'changed', ('config.currency',))]",
        "[('2026-11-14', 12.5, 'CHF'), ('2026-11-15', 5.0, 'CHF')]",
        "[('orders', 1, 1), ('order_totals', 2, 1)]",
        "1 was 2",
        "[('2026-11-14', 12.5, 'EUR'), ('2026-11-15', 5.0, 'EUR')]",
        "('orders@1',) 0",
        "('order_totals@1',) 0",
        "1",
        "2",
    ],
    "query_datasets.py": ["2026-11-14 15.0", "2026-11-15 15.0", "'day': '2026-11-1"],
    "live_operators.py": [
        *("ticks block_follower", "candles range_aggregator", "spreads sql_transform", "alerts alert_evaluate"),
        *("rates http_fetch", "rounded udf", "longest longest_run"),
    ],
    "live_sources.py": ["shop 1", "6 new", "0 new", "6 ['c0', 'c1', 'c2']", "sha256=", "kind='table'"],
    "schedules.py": ["report True", "the report of 20", "5", "5 {'completed'}"],
    "schedule.py": ["True 1000", "[('scheduled', 2)]"],
    "testing.py": ["ok"],
    "keep_workflows.py": [
        *("nightly/main {'size': 1}", "nodes.fetch.params.size: ours 6, theirs 7", "nodes fetch params size"),
        *("{'size': 1} []", "nodes.fetch.next: there is no node 'nowhere'"),
    ],
    "jobs.py": [
        *("paid 30", "ask {'reason': {'type': 'string'}}", "paid 420", "total completed", "ask completed"),
        "END completed",
    ],
    "watch.py": [
        "greet no_worker no live worker serves",
        "job.submitted",
        "greet task.completed",
        "job.completed",
        "True",
    ],
    "run_again.py": [
        *("failed", "count keep because nothing about it has changed", "report run because it was dead (error)"),
        *("42 in B2, reported", "0", "42 in C3, reported"),
    ],
    "reuse_outputs.py": [
        *("[300, 400]", "[400, 400, 300]", "as task", "as task", "[300]", "look run:", "map.elevation 3", "3"),
    ],
    "graphs.py": ["COMPLETED all is loaded", "COMPLETED", "13"],
    "handling.py": ["True completed 8", "{'pixels': 8000000}"],
    "callbacks.py": ['True :"completed"'],
    "flows.py": ["30.0"],
    "mapping.py": ["[0, 1, 4, 9, 16, 25, 36, 49, 64, 81]"],
    "python_flows.py": [
        *(
            "in has 26 bytes",
            "alps.tif in tiles of 64, fast",
            "{'scaled': [10, 200, 30], 'pairs': [3, 14], 'count': 3}",
        ),
        *("as usual odd: 1", "long short", "done", "'y has 6 bytes'", "workflow_id: sums"),
        *("python_flows.py:", "for `if` use weft.when"),
    ],
    "submit_flows.py": ["with_tax completed {'completed': 3}", "END completed", "30.0"],
    "observe.py": ["00-"],
    "reasons.py": ["pause mail because the receiver is down, ticket 4711"],
    "operate.py": ["it is due at", "no live worker serves", "is paused", "it has ended: completed"],
}
COMMANDS = {
    "first_queue.sh": [
        '"sent to ada@example.com"',
        "ended with exit code 1",
        "dead (error)",
        "reading",
        "42.5",
        "leader",
    ],
    "first_workflow.sh": [
        *("30.0", "1 file without a problem", "⇉ with_tax  flows.with_tax for each", "26.4", "completed", "pushed "),
        *("sales/main", "30.0", "workflow_id: sales"),
    ],
    "migrate.sh": ["0007 (head)", "downgraded from 0007 to nothing"],
    "operate.sh": [
        *("default", "something is not well", "jobs_created_total"),
        "created mail",
        "paused mail",
        "resumed mail",
        "replayed 0",
        "purged 0",
    ],
    "limits.sh": [
        "mail: 20 at once",
        "20 at once, 2 per key",
        "5 at once for the key acme",
        "5 at once for the key acme, 0 ready or running",
    ],
    "first_server.sh": [
        *("pushed ", '"created":true', "signed in to http://127.0.0.1:", '"Hello, Grace!"', "welcome", "127.0.0.1-"),
        *("commands go to this machine now", "created far", '"Hello, Alan!"'),
    ],
    "http_api.sh": [
        *(
            '"tag":"tile_raster/main"',
            '"created":true',
            '"created":true',
            '"workflow_id":"tile_raster"',
            '"next":null',
        ),
        *('"code":"invalid_input"', '"field":"priority"', "200", "412"),
    ],
    "query_datasets.sh": ["2026-11-14", "15.0", "2026-11-15", "before", "3", "PAR1"],
    "lineage.sh": [
        *("orders.price", "○ orders", "○ totals", "○ largest", "○ orders.price", "○ totals.total", "○ orders@1.1"),
        *("orders@1.1", "orders@1.2", "0 added, 0 removed, 1 rewritten", "0 added, 0 removed, 0 changed"),
    ],
    "dataset_storage.sh": [
        *("is weather@1.1", "2026-11-14", "3.5", "created totals", "orders is written by shop, node import"),
        *("would delete orders with 6 rows", "deleted orders with 6 rows", "orders is back with 6 rows"),
    ],
    "deploy_live.sh": [
        *("1 file without a problem", "would deploy version 1 of orders, in effect at once", "deployed version 1"),
        *(
            "in effect    version 1",
            "sent order.placed",
            "sent 1",
            "max_attempts",
            "deployed version 2 of orders, which is in effect",
            "try harder",
        ),
        "would bring version 1 of orders into effect at once, in the place of 2",
        *("version 1 of orders is in effect, was 2", "version 2 of orders is in effect, was 1", "changed"),
        *(
            "it is being built",
            "building",
            "gave up version 3",
            "nothing is remembered",
            "paused totals of orders",
            "resumed totals of orders",
        ),
        *("no open units", "tries 0 units again", "would deploy version 4 of orders"),
        *("builds version 4 of orders", "orders drains"),
    ],
    "datasets.sh": [
        *("orders", "shop.import_orders", "double", "2026-11-15", "replace", "current", "would take orders from"),
        *("orders is orders@1.3, was orders@1.2", "created finance", "orders is seen by admins, finance"),
    ],
    "schedules.sh": [
        *(
            "02:30:00+0",
            "02:30:00+0",
            "added tile_raster: 30 2 * * * Europe/Berlin; next",
            "added often: every 15m; next",
            "set often: every 15m; next",
        ),
        *("often", "tile_raster", "30 2 * * *", "02:30:00+0", "no jobs", "paused often", "resumed often"),
        *("changed tile_raster: 0 4 * * * Europe/Berlin", "began job ", "would make jobs of ", "4 at once"),
        *("makes jobs of ", "0 of ", "deleted often"),
    ],
    "people.sh": [
        *("created acme", "added ada, admin", "bob is writer", "deactivated bob", "activated bob", "ada@example.com"),
        *("created finance", "ada has the role finance", "weft_", "gpu-workers", "render, train", "revoked "),
        *("revoke", "/sign-in?code=", "acts are sealed"),
    ],
    "keep_workflows.sh": [
        *("pushed ", "tile_raster/main", "patched ", "undone: ", "redone: ", "branched: ", "merged ", "its own queue"),
        *("nodes.scheme.queue", "ended with exit code 5", "merged ", "reverted "),
    ],
    "release_workflows.sh": [
        *(
            "is protected",
            "ended with exit code 5",
            "max_parallel: 8",
            "max_parallel: 8 → 64",
            "ended with exit code 1",
        ),
        *("deleted: ", "undeleted: ", " has it whole: ", "the history is whole", "would remove 0 snapshots"),
    ],
    "definitions.sh": [
        *("1 file without a problem", "⇉ tiles  raster.process_tile_batch for each, at most 8"),
        *("max_parallel: 8 → 16", "they differ", '"path":"/nodes/tiles/max_parallel"'),
    ],
    "run_workflows.sh": [
        *('{"count":10}', '{"count":10}', "completed", "paused ", "resumed ", "tile_raster", "cancelled "),
        *("nothing waits for a person", "sent file.arrived; 0 nodes of jobs waited for it"),
    ],
    "watch_jobs.sh": [
        *(
            "created rasters",
            "scheme ready: no live worker serves queue 'rasters'",
            "END pending: it waits for collect",
        ),
        *(
            '{"count":10}',
            "submitted",
            "tiles",
            "10 items",
            '"type":"job.completed"',
            "scheme | looking at scans/alps.tif",
        ),
    ],
    "run_again.sh": [
        *("scheme", "keep", "collect", "run", "it was asked for", '{"count":10}', '{"count":10}', "patched "),
        *('{"count":10}', "would run again 0", "run again 0"),
    ],
    "reuse_outputs.sh": [
        *('{"count":10}', "run: no cache is said of it", "the cache is empty", "cleared 0", "cleared 0"),
    ],
    "change_one_job.sh": ['{"count":10}', "tile_raster"],
    "bisect.sh": ["faster", "worked at", "nodes.collect.output.results.count"],
    "worker_by_curl.sh": [
        *('"worker_id":"', '"params":{"text":"one two"}', '"lost":[]', '{"size":8}', '"data":["one","two"]'),
        *('"refused":[]', '"params":{"text":"three"}', '"refused":[]', '"params":{"text":"four"}', '"refused":[]'),
        *('"code":"worker_lost"', "refused: it holds nothing any more", "ready", "failed", "completed"),
    ],
    "any_language.sh": ["created mail", "dead", "text:break", "completed", "text:count", "sent to ada@example.com"],
    "backup.sh": ["wrote weft.dump", "restored weft.dump", "(1 row)"],
}
TESTS = {"test_flows.py"}
STATEMENTS = {"enqueue.sql", "grants.sql"}
OTHERS = {
    "any_language.py",
    "orders.yaml",
    "tile_raster.yaml",
    "live_operators.yaml",
    "live_sources.yaml",
    "live_table.yaml",
    "shop.py",
    "reports.py",
    "rasters.py",
    "run_worker.py",
    "weft.toml",
    "weft-worker.service",
    "prometheus.yaml",
    "weft-alerts.yaml",
}


def environment(**settings: object) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "POSTGRES_", "PG"))}
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return kept | {name: str(value) for name, value in settings.items()}


async def run(argv: list[str], folder: Path, env: Mapping[str, str]) -> str:
    """Run a program in ``folder`` to its end and return what it printed; it must end well."""

    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)

    return _printed(await asyncio.to_thread(call), argv)


async def run_warm(script: Path, folder: Path, env: Mapping[str, str]) -> str:
    """The same with a script, in a copy of a process that has loaded Weft."""
    finished = await asyncio.to_thread(warm.run_script, script, environment=env, folder=folder, timeout=TIMEOUT)
    return _printed(finished, [str(script)])


def _printed(finished: subprocess.CompletedProcess[str], argv: list[str]) -> str:
    assert finished.returncode == 0, f"{argv} ended with {finished.returncode}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def require_in_order(output: str, expected: list[str]) -> None:
    place = 0
    for text in expected:
        found = output.find(text, place)
        assert found >= 0, f"{text!r} is not in what was printed after place {place}:\n{output}"
        place = found + len(text)


def test_every_file_that_the_docs_may_show_is_run() -> None:
    found = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert found == {*SCRIPTS, *COMMANDS, *TESTS, *STATEMENTS, *OTHERS}


# The others run in copies of a process that is warm; so does nobody's program but a test's. Handlers that run in
# processes of their own are found by what their program is.
STARTED = {
    "backup.sh",
    "change_one_job.sh",
    "http_api.sh",
    "migrate.sh",
    "first.py",
    "long_tasks.py",
    "own_transaction.py",
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_script_of_the_docs_prints_what_its_page_says(name: str, url: str, home: Path, tmp_path: Path) -> None:
    env = environment(WEFT_DATABASE_URL=url, WEFT_HOME=home)
    if name in STARTED:
        output = await run([sys.executable, "-W", "error", str(FOLDER / name)], tmp_path, env)
    else:
        output = await run_warm(FOLDER / name, tmp_path, env)
    require_in_order(output, SCRIPTS[name])


# Backups are of the embedded database; and a schema that is taken down is that of the test's own.
_BY_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="the page is about curl")
MARKS = {
    "backup.sh": [pytest.mark.embedded],
    "migrate.sh": [pytest.mark.own_database],
    "http_api.sh": [_BY_CURL],
    "worker_by_curl.sh": [_BY_CURL],
    "first_server.sh": [_BY_CURL, pytest.mark.embedded],
}


@pytest.fixture(scope="session")
def warm_weft() -> Iterator[Path]:
    """A folder with a `weft` that is loaded already."""
    with warm.weft_on_path() as folder:
        yield folder


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in COMMANDS])
async def test_the_commands_of_a_page_work(
    name: str, url: str, home: Path, tmp_path: Path, server_home: Path, server_url: str, warm_weft: Path
) -> None:
    for needed in (
        "any_language.py",
        "reports.py",
        "rasters.py",
        "orders.yaml",
        "tile_raster.yaml",
        "flows.py",
        "shop.py",
        "datasets.py",
        "lineage.py",
    ):
        shutil.copy(FOLDER / needed, tmp_path)
    is_embedded = name in ("backup.sh", "first_server.sh")
    env = environment(WEFT_HOME=server_home) if is_embedded else environment(WEFT_DATABASE_URL=url, WEFT_HOME=home)
    if name not in STARTED:
        env["PATH"] = f"{warm_weft}{os.pathsep}{env['PATH']}"
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    # Pages name the port that there is without further ado, and on this machine somebody may have it.
    script = (FOLDER / name).read_text(encoding="utf-8").replace("8400", str(_free_port()))
    (tmp_path / "page.sh").write_text(script, encoding="utf-8")
    require_in_order(await run(["bash", "page.sh"], tmp_path, env), COMMANDS[name])


@pytest.mark.parametrize("name", sorted(TESTS))
async def test_the_tests_of_a_page_pass(name: str, server_url: str, tmp_path: Path) -> None:
    # By name, for where the package is installed without its entry point; that of the wheel has a test of its own.
    plugin = ["-p", "no:weft", "-p", "weft.testing.plugin", "-p", "no:randomly", "-p", "no:cacheprovider"]
    env = environment(WEFT_TEST_DATABASE_URL=server_url)
    argv = [sys.executable, "-m", "pytest", "-q", *plugin, "--rootdir", str(FOLDER), str(FOLDER / name)]
    require_in_order(await run(argv, tmp_path, env), ["passed"])


async def test_what_a_task_prints_and_logs_stands_in_its_own_file(url: str, home: Path, tmp_path: Path) -> None:
    env = environment(WEFT_DATABASE_URL=url, WEFT_HOME=home)
    task_id = (await run([sys.executable, str(FOLDER / "task_logs.py")], tmp_path, env)).strip()
    log = (home / "logs" / f"{task_id}.log").read_text()
    require_in_order(log, ["counting B2", "WARNING shop: shelf B2 is nearly empty", f"attempt 1 of task {task_id}"])


async def test_a_worker_in_a_program_stops_by_a_signal(url: str, home: Path, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(FOLDER / "run_worker.py")), stdout=asyncio.subprocess.PIPE, cwd=tmp_path,
        env=environment(WEFT_DATABASE_URL=url, WEFT_HOME=home),
    )  # fmt: skip
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), TIMEOUT) == b"working\n"
    process.send_signal(signal.SIGTERM)
    output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert (output, process.returncode) == (b"stopped\n", 0)


async def test_the_sql_of_the_docs_enqueues_by_call_and_by_trigger(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    await conn.execute((FOLDER / "enqueue.sql").read_text())
    rows = await conn.fetch("select state, params::jsonb ->> 'order' as number from weft.tasks order by id")
    assert [tuple(row) for row in rows] == [("ready", "1"), ("scheduled", "1"), ("ready", "1"), ("ready", "2")]


async def test_the_grants_of_the_docs_let_a_role_enqueue_and_another_read(
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:
    await grant(conn)
    try:
        await conn.execute("set role shop_web")
        for arguments in ("", ", idempotency_key => 'k'", ", concurrency_key => 'k'", ", delay => '1 minute'"):
            assert await conn.fetchval(f"select created from weft.enqueue('note'{arguments})")
        assert await conn.fetchval("select created from weft.enqueue('note', json_build_object('t', repeat('x', 999)))")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.fetch("select * from weft.tasks")
        await conn.execute("reset role; set role shop_report")
        assert await conn.fetchval("select count(*) from weft.tasks") == 5
        for view in ("attempts", "queues", "workers", "orgs"):
            await conn.fetch(f"select * from weft.{view}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.fetch("select * from weft.enqueue('note')")
    finally:
        await conn.execute("reset role")
        await take_back(conn)


def test_the_settings_file_of_the_docs_is_read() -> None:
    settings = Settings.load(environ={"WEFT_CONFIG": str(FOLDER / "weft.toml")})
    assert (settings.worker_concurrency, settings.retention.days, str(settings.log_dir)) == (50, 14, "/srv/shop/logs")


def test_the_unit_of_the_docs_waits_longer_than_the_worker_does() -> None:
    unit = configparser.ConfigParser()
    unit.read(FOLDER / "weft-worker.service")
    settings = Settings.load(environ={"WEFT_CONFIG": str(FOLDER / "weft.toml")})
    assert int(unit["Service"]["TimeoutStopSec"]) > settings.worker_shutdown_grace.total_seconds()
    assert "weft worker" in unit["Service"]["ExecStart"]
