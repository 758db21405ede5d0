"""One PostgreSQL for each process of the run, with one migrated database that is emptied for each test."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import shutil
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import hypothesis
import pytest

import servers
import weft
from far import far_client
from looking import LookingConnection
from pooler import Pooler, pooler_to
from reset import Emptier
from room import make_home
from storages import BucketStorage, FolderStorage, Storage
from weft.core.settings import Settings
from weft.db import embedded, migrate
from weft.db.database import Database
from weft.worker.registry import Registry

if TYPE_CHECKING:
    from buckets import S3Bucket, S3Server

# A server that lives for one run of the tests: nothing of it must outlast a power cut, only the ends of its processes.
SERVER_CONFIG = """\
fsync = off
full_page_writes = off
# It may be in memory, and has little to write.
wal_init_zero = off
min_wal_size = 64MB
max_wal_size = 256MB
"""

# What speaks HTTP looks for it several times a request, through all folders of modules where it is not installed.
if importlib.util.find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

# Read before the fixture below takes it away: no program that a test starts knows such a setting.
TEST_BIN = os.environ.get("WEFT_TEST_BIN")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--through-a-server", action="store_true", help="let workers work without a database")
    parser.addoption("--campaign", choices=("short", "long"), default="short", help="length of the crash campaigns")
    parser.addoption("--deep", action="store_true", help="also what is marked deep, as in the long campaigns")


def pytest_xdist_auto_num_workers() -> int:
    # Tests wait more than they compute: for leases to lapse, for servers to start, for locks.
    return min(8, 2 * (os.cpu_count() or 1))


def pytest_configure(config: pytest.Config) -> None:
    # Shells let programs in the background ignore it, and whatever the tests start would do so too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Every day the same examples: what a change did not break must not fail. The long campaigns look for new ones.
    hypothesis.settings.register_profile("short", derandomize=True)
    hypothesis.settings.register_profile("long", derandomize=False)
    hypothesis.settings.load_profile(config.getoption("--campaign"))
    # What is loaded now stays to the end: to look through it for garbage takes as long as to load it.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if TEST_BIN is not None and item.get_closest_marker("embedded"):
            item.add_marker(pytest.mark.skip("holds for the version that is embedded"))
    if not config.getoption("--deep") and config.getoption("--campaign") == "short":
        deep = [item for item in items if item.get_closest_marker("deep")]
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
    items[:] = _long_ones_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _long_ones_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the items such that each worker, which gets as many in a row as the others, begins with long ones."""
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        begun = long[worker::workers]
        share = (len(items) - len(ordered)) // (workers - worker) - len(begun)
        ordered += begun + others[:share]
        del others[:share]
    return ordered


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--campaign"))


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """No setting of the machine reaches a test."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("WEFT_", "POSTGRES_", "PG", "AWS_"))}
    for name in kept:
        del os.environ[name]
    yield
    os.environ.update(kept)


@pytest.fixture(scope="session")
def server_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Path]:
    """The home of this process's own server."""
    home = make_home("test")
    config = home / "postgres.conf"
    config.write_text(SERVER_CONFIG, encoding="utf-8")
    config.chmod(0o644)
    yield home
    asyncio.run(embedded.stop(Settings(home=home), mode="immediate"))
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def server_url(server_home: Path) -> str:
    """A running server, the embedded one or one of the programs in WEFT_TEST_BIN; its template database is migrated."""

    async def prepare() -> str:
        if TEST_BIN is None:
            server = await embedded.ensure_running(Settings(home=server_home))
        else:
            server = await servers.start(server_home, await servers.programs_in(Path(TEST_BIN)))
        conn = await asyncpg.connect(server.url)
        await conn.execute("create database weft_template")
        await conn.close()
        await migrate.upgrade(_with_database(server.url, "weft_template"))
        return server.url

    return asyncio.run(prepare())


def _with_database(url: str, name: str) -> str:
    head, _, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}?{query}"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty, migrated database: of the test's own if it is marked so, else of the shared one."""
    is_own = request.node.get_closest_marker("own_database") is not None
    return str(request.getfixturevalue("own_url" if is_own else "emptied_url"))


@pytest.fixture
async def own_url(server_url: str) -> AsyncIterator[str]:
    """The address of an empty, migrated database of the test's own."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(_with_database(server_url, "postgres"))
    try:
        await admin.execute(f"create database {name} template weft_template strategy file_copy")
        yield _with_database(server_url, name)
        await admin.execute(f"drop database {name} with (force)")
    finally:
        await admin.close()


@pytest.fixture(scope="session")
def shared_database(server_url: str) -> str:
    """A migrated database that tests use one after the other: to make one takes longer than most of them do."""

    async def make() -> None:
        admin = await asyncpg.connect(server_url)
        await admin.execute("create database shared template weft_template")
        await admin.close()

    asyncio.run(make())
    return _with_database(server_url, "shared")


@pytest.fixture(scope="session")
def emptier(shared_database: str) -> Iterator[Emptier]:
    """Whoever empties the shared database before each test."""
    emptier = Emptier(shared_database)
    yield emptier
    emptier.close()


@pytest.fixture
def emptied_url(shared_database: str, emptier: Emptier) -> str:
    """The address of the shared database, of which nothing is left but its schema."""
    emptier.empty()
    return shared_database


@pytest.fixture
def pooler(url: str) -> Iterator[Pooler]:
    """A transaction pooler before the test's database."""
    with pooler_to(url) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for the blobs and logs of one test."""
    return tmp_path / "home"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 on a port of this machine."""
    from buckets import S3Server

    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3_bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Bucket:
    """An empty bucket of the test's own, and an environment in which it is found."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket()


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of blobs, of each kind in turn."""
    if request.param == "folder":
        return FolderStorage(tmp_path / "storage")
    return BucketStorage(request.getfixturevalue("s3_bucket"))


@pytest.fixture
def settings(url: str, home: Path) -> Settings:
    """Quick heartbeats, but a lease that a busy machine does not break."""
    return Settings.load(environ={}, database_url=url, home=home, worker_heartbeat_interval=0.5, worker_timeout=8)


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    opened = await Database.open(settings)
    yield opened
    await opened.close()


@pytest.fixture
async def conn(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A plain connection to the test's database, to look and to meddle."""
    opened = await asyncpg.connect(url, connection_class=LookingConnection)
    yield opened
    await opened.close()


@pytest.fixture
async def client(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[weft.Client]:
    """A client of the test's database; its workers may be without one, by the test's own wish or for the whole run."""
    is_far = request.config.getoption("--through-a-server") and request.node.get_closest_marker("direct") is None
    is_far = is_far or getattr(request, "param", "") == "through a server"
    async with far_client(settings) if is_far else weft.Client(settings=settings) as opened:
        yield opened


@pytest.fixture
def registry() -> Registry:
    """A registry of the test's own, so that handlers of tests do not meet."""
    return Registry()
