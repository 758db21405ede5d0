"""A worker that knows a server's address and a token, and uses nothing but Python's standard library."""

import http.client
import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "text:count": lambda params: {"words": len(params["text"].split())},
    "text:break": lambda params: params["missing"],
    "file:await": lambda params: wait_for(params["path"]),
}


def wait_for(path: str) -> int:
    """Wait until there is a file, and return how large it is."""
    while not os.path.exists(path):
        time.sleep(0.05)
    return os.path.getsize(path)


# docs: begin ask
class Refused(Exception):
    """The server does not do it; ``code`` says why."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class Server:
    """One connection to the server; it is opened again when it broke."""

    def __init__(self, address: str, token: str) -> None:
        found = urlsplit(address)
        kind = http.client.HTTPSConnection if found.scheme == "https" else http.client.HTTPConnection
        self._line = kind(found.netloc, timeout=60)
        self._prefix = found.path.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        """Ask for one act; every act but a claim may be sent again, so a broken connection is no reason to stop."""
        for pause in (0.1, 1, 5):
            try:
                return self.ask_once(path, **body)
            except ConnectionError:
                time.sleep(pause)
        return self.ask_once(path, **body)

    def ask_once(self, path: str, **body: Any) -> dict[str, Any]:
        """Ask for one act; after a `ConnectionError` nobody knows whether it was done."""
        try:
            self._line.request("POST", self._prefix + path, json.dumps(body), self._headers)
            answer = self._line.getresponse()
            told: dict[str, Any] = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self._line.close()
            raise ConnectionError(f"the server does not answer: {problem!r}") from None
        if answer.status == 503:
            raise ConnectionError(told["detail"])
        if answer.status >= 400:
            raise Refused(told["code"], told["detail"])
        return told


# docs: end ask


# docs: begin heart
def beat(server: Server, worker_id: str, interval: float, is_over: threading.Event) -> None:
    """Say that the worker lives, on a connection of its own: all that it holds stays its own by that."""
    while not is_over.wait(interval):
        try:
            server.ask("/v1/worker/heartbeat", worker_id=worker_id)
        except (Refused, ConnectionError) as problem:
            print(f"worker {worker_id}: {problem}", flush=True)  # whoever claims is told, and begins anew


# docs: end heart


# docs: begin run
def run(server: Server, task: dict[str, Any]) -> None:
    """Run one task to its outcome."""
    lease = {"task_id": task["task_id"], "lease_token": task["lease_token"]}
    if task["params_blob"] is not None:
        task = server.ask("/internal/task-fetch", **lease)
    try:
        output = HANDLERS[task["handler"]](task["params"])
    except Exception as problem:  # noqa: BLE001  (whatever the handler raises is its failure)
        error = {"type": type(problem).__name__, "message": str(problem), "traceback": traceback.format_exc()}
        path, said = "/v1/task/fail", {**lease, "error": error}
    else:
        path, said = "/v1/task/complete", {**lease, "output": output}
    try:
        server.ask("/v1/task/log", **lease, offset=0, text=f"{task['handler']} has ended\n")
        server.ask(path, **said)
    except Refused as problem:
        if problem.code != "lease_lost":
            raise
        print(f"task {task['task_id']} is with another worker: {problem}", flush=True)


# docs: end run


# docs: begin again
def work(address: str, token: str, most: int) -> None:
    """Run so many tasks; a worker that was given up for lost begins anew, under another id."""
    while most > 0:
        try:
            for _ in worked(address, token, most):
                most -= 1
        except Refused as problem:
            if problem.code != "worker_lost":
                raise
            print(f"begins anew: {problem}", flush=True)


# docs: end again


# docs: begin work
def worked(address: str, token: str, most: int) -> Iterator[str]:
    """Register, claim and run until so many tasks have run, then leave; tell of each."""
    server = Server(address, token)
    told = server.ask("/v1/worker/register", queues=["default"], handlers=list(HANDLERS), hostname="anywhere")
    worker_id, is_over = told["worker_id"], threading.Event()
    heart = threading.Thread(
        target=beat, args=(Server(address, token), worker_id, told["heartbeat_seconds"], is_over), daemon=True
    )
    heart.start()
    try:
        while most > 0:
            for task in claimed(server, worker_id):
                run(server, task)
                most -= 1
                yield task["task_id"]
    finally:
        is_over.set()
        server.ask("/v1/worker/deregister", worker_id=worker_id)


def claimed(server: Server, worker_id: str) -> list[dict[str, Any]]:
    """Claim a task; without an answer, or with nothing in it, look at what the worker holds by a claim before."""
    try:
        if tasks := server.ask_once("/v1/task/claim", worker_id=worker_id, limit=1, wait=30)["tasks"]:
            return list(tasks)
    except ConnectionError as problem:
        print(f"a claim has no answer: {problem}", flush=True)  # it may have taken a task, and nobody else gets that
    return list(server.ask("/v1/worker/holdings", worker_id=worker_id)["tasks"])


# docs: end work


if __name__ == "__main__":
    work(os.environ["WEFT_SERVER"], os.environ["WEFT_TOKEN"], int(os.environ.get("MOST_TASKS", "1000000")))
