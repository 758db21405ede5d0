"""The settings of the embedded PostgreSQL, sized for this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from weft.db.embedded_layout import Layout, open_own

_MIB = 1024**2

_TEMPLATE = """\
# PostgreSQL {version}: written by Weft at each start. Your own settings go into postgres.conf beside this file.
include 'pgdata/postgresql.conf'

# Only through the socket, which only its owner reaches.
listen_addresses = ''
unix_socket_permissions = 0700
max_connections = 200
cluster_name = 'weft'

# What was acknowledged survives a crash.
fsync = on
synchronous_commit = on
full_page_writes = on

# Many small transactions: few checkpoints, WAL files that are used again.
wal_level = replica
wal_buffers = 16MB
min_wal_size = 256MB
max_wal_size = 2GB
checkpoint_timeout = 15min
shared_buffers = {shared_buffers}MB
effective_cache_size = {effective_cache_size}MB
work_mem = 16MB
maintenance_work_mem = 128MB
random_page_cost = 1.1
jit = off

# Parallel plans help no queue, and their memory is in /dev/shm, which is small in containers and is cleared at logout.
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
min_dynamic_shared_memory = 8MB

# A queue makes dead rows all the time: little and often.
autovacuum_naptime = 5s
autovacuum_vacuum_scale_factor = 0.05
autovacuum_vacuum_insert_scale_factor = 0.1
autovacuum_analyze_scale_factor = 0.05
autovacuum_vacuum_cost_limit = 2000

# Neither values nor statements: they may contain secrets.
log_min_messages = warning
log_min_error_statement = panic
log_error_verbosity = terse
log_checkpoints = off
log_line_prefix = '%m [%p] '
log_timezone = 'UTC'
timezone = 'UTC'

include_if_exists 'postgres.conf'
"""


def write_config(layout: Layout, version: str) -> None:
    """Write our settings, noting which PostgreSQL starts with them."""
    memory = _memory() // _MIB
    text = _TEMPLATE.format(
        version=version,
        shared_buffers=min(max(memory // 8, 128), 512),
        effective_cache_size=max(memory // 2, 256),
    )
    descriptor = open_own(layout, layout.config_file, os.O_WRONLY | os.O_TRUNC)
    with open(descriptor, "w", encoding="utf-8") as file:
        if layout.account:
            os.fchown(file.fileno(), -1, layout.account.gid)
        os.fchmod(file.fileno(), 0o640)
        file.write(text)


def noted_version(layout: Layout) -> str:
    """Return the version that was last started, or the data's major version when it was another, or none was noted."""
    try:
        major = (layout.data_dir / "PG_VERSION").read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return "unknown"
    try:
        with open(layout.config_file, encoding="utf-8") as file:
            match = re.match(r"# PostgreSQL ([\w.]+)", file.readline())
    except FileNotFoundError:
        return major
    return match[1] if match and match[1].partition(".")[0] == major else major


def _memory() -> int:
    """Return the bytes of memory of the machine, or of the container around this process."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total
