"""Says why PostgreSQL cannot be reached, and what to do about that cause."""

from __future__ import annotations

import socket
import ssl

import asyncpg

from weft.core.errors import DatabaseUnavailable
from weft.db.address import redacted

# The first that fits; what is more special stands before what includes it.
_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.TooManyConnectionsError, "raise max_connections, or run fewer workers and clients"),
    (asyncpg.InvalidCatalogNameError, "make that database with `createdb`, or name another in the address"),
    (asyncpg.InvalidAuthorizationSpecificationError, "check the user and the password, and pg_hba.conf"),
    (asyncpg.ReadOnlySQLTransactionError, "it is a standby: give the address of the primary"),
    (asyncpg.CannotConnectNowError, "it is starting or stopping: try again soon"),
    (asyncpg.AdminShutdownError, "it is being stopped, or somebody ended the session: try again soon"),
    (asyncpg.CrashShutdownError, "it crashed and recovers: try again soon"),
    (socket.gaierror, "check the host in the address"),
    (ssl.SSLError, "check sslmode and the certificates"),
    (PermissionError, "this user may not enter the folder of the socket"),
    (TimeoutError, "check the host and the port, and that no firewall is between"),
)
_OTHERWISE = "check that it runs, and the host and the port"


def unreachable(url: str, problem: BaseException) -> DatabaseUnavailable:
    """Return the error that tells the cause and its remedy, without the address's password."""
    advice = next((advice for kind, advice in _ADVICE if isinstance(problem, kind)), _OTHERWISE)
    return DatabaseUnavailable(redacted(url), str(problem) or type(problem).__name__, advice)
