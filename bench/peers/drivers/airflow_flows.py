"""Airflow: all its services by ``airflow standalone``, on PostgreSQL; each task is a process."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from flows import Flows
from processes import HERE, free_port, running, wait_until

START_S = 180.0
CALL_S = 120.0  # its server is slow to answer while it starts on a busy machine
POLL_S = 0.1


class Driver(Flows):
    distribution = "apache-airflow"
    setting = f"standalone, LocalExecutor; asked every {POLL_S} s"
    keeps = "PostgreSQL"

    @contextmanager
    def running(self) -> Iterator[None]:
        port = free_port()
        self._address, self._token = f"http://127.0.0.1:{port}", ""
        programs = Path(sys.executable).parent
        environment = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "airflow_dags"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self._address}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.url.replace("postgresql://", "postgresql+psycopg2://", 1),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PEER_COUNT": str(self.count),
        }
        with running([str(programs / "airflow"), "standalone"], environment) as server:
            wait_until(self._logs_in, server, START_S, 0.2)
            # The first call of its interface for tasks builds the routes, longer than tasks wait on a busy machine.
            self._call("/execution/health")
            for shape in ("chain", "fan", "fib"):
                wait_until(lambda shape=shape: self._knows(f"{shape}_{self.count}"), server, START_S, 0.2)
            yield

    def chain(self, tasks: int) -> None:
        self._execute(f"chain_{tasks}")

    def fan(self, width: int) -> None:
        self._execute(f"fan_{width}")

    def fib(self, tasks: int) -> None:
        self._run = self._execute(f"fib_{tasks}")

    def clocked(self) -> float:
        tasks = [f"{self._run}/taskInstances/n{number}" for number in range(self.count)]
        return sum(float(self._call(f"{task}/xcomEntries/return_value")["value"]) for task in tasks)

    def _execute(self, name: str) -> str:
        """Start a run and ask until it has ended; return its path."""
        started = self._call(f"/api/v2/dags/{name}/dagRuns", {"logical_date": None})
        path = f"/api/v2/dags/{name}/dagRuns/{started['dag_run_id']}"
        while (state := self._call(path)["state"]) not in ("success", "failed"):
            time.sleep(POLL_S)
        if state == "failed":
            raise RuntimeError(f"{path} failed")
        return path

    def _call(self, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
        with urlopen(Request(self._address + path, data, headers), timeout=CALL_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def _logs_in(self) -> bool:
        try:
            self._token = self._call("/auth/token")["access_token"]
        except (OSError, ValueError):
            return False
        return True

    def _knows(self, name: str) -> bool:
        try:
            self._call(f"/api/v2/dags/{name}")
        except HTTPError:
            return False
        return True
