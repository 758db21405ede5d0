"""Crash, race and fault tests: real processes, real sockets, a real PostgreSQL."""
