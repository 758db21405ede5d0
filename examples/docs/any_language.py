"""A worker that knows a server's address and a token, and uses nothing but Python's standard library."""

import http.client
import json
import os
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "text:count": lambda params: {"words": len(params["text"].split())},
    "text:break": lambda params: params["missing"],
}


# docs: begin ask
class Server:
    """One connection to the server; it is opened again when it broke."""

    def __init__(self, address: str, token: str) -> None:
        self._host = urlsplit(address).netloc
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._line = http.client.HTTPConnection(self._host, timeout=60)

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        """Ask for one act; every act of a task may be sent again, so a broken connection is no reason to stop."""
        for pause in (0, 0.1, 1, 5):
            time.sleep(pause)
            try:
                self._line.request("POST", path, json.dumps(body), self._headers)
                answer = self._line.getresponse()
                told: dict[str, Any] = json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                self._line.close()
                continue
            if answer.status == 503:
                continue
            if answer.status >= 400:
                raise RuntimeError(f"{told['code']}: {told['detail']}")
            return told
        raise ConnectionError("the server does not answer")


# docs: end ask


# docs: begin heart
def beat(server: Server, worker_id: str, interval: float, is_over: threading.Event) -> None:
    """Say that the worker lives, on a connection of its own: all that it holds stays its own by that."""
    while not is_over.wait(interval):
        server.ask("/v1/worker/heartbeat", worker_id=worker_id)


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
        server.ask("/v1/task/fail", tasks=[{**lease, "error": error}])
    else:
        server.ask("/v1/task/log", **lease, offset=0, text=f"{task['handler']} returned {output}\n")
        server.ask("/v1/task/complete", **lease, output=output)


# docs: end run


# docs: begin work
def work(address: str, token: str, most: int) -> None:
    """Register, claim and run until so many tasks have run, then leave."""
    server = Server(address, token)
    told = server.ask("/v1/worker/register", queues=["default"], handlers=list(HANDLERS), hostname="anywhere")
    worker_id, is_over = told["worker_id"], threading.Event()
    heart = threading.Thread(
        target=beat, args=(Server(address, token), worker_id, told["heartbeat_seconds"], is_over), daemon=True
    )
    heart.start()
    try:
        while most > 0:
            for task in server.ask("/v1/task/claim", worker_id=worker_id, limit=1, wait=30)["tasks"]:
                run(server, task)
                most -= 1
    finally:
        is_over.set()
        server.ask("/v1/worker/deregister", worker_id=worker_id)


# docs: end work


if __name__ == "__main__":
    work(os.environ["WEFT_SERVER"], os.environ["WEFT_TOKEN"], int(os.environ.get("MOST_TASKS", "1000000")))
