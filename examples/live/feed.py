"""A feed of ticks for `market.yaml`: a new one again and again, and now and then others in place of the last ones.

Shows: what a follower of a feed asks for, and what it is answered. Run it as ``python feed.py PORT [COUNT]``.
"""

import hashlib
import json
import math
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TICKS: list[dict[str, Any]] = []


def grow(salt: int) -> None:
    """Add a tick; its hash is made of the one before, so that each tells all that came before it."""
    number = len(TICKS)
    parent = TICKS[-1]["hash"] if TICKS else ""
    price = round(100 + 10 * math.sin(number / 40) + (number * 7919 + salt) % 100 / 50, 2)
    digest = hashlib.sha256(f"{parent}{number}{price}{salt}".encode()).hexdigest()
    TICKS.append({"number": number, "hash": digest, "parent": parent, "price": price, "at": 1_790_000_000 + number})


def go_on(count: int | None) -> None:
    """Bring ticks until there are so many; each fiftieth time the last three are taken back first."""
    for turn in iter(int, 1) if count is None else range(count):
        if turn and turn % 50 == 0:
            del TICKS[-3:]
            for _ in range(3):
                grow(turn + 1)
        grow(0)
        time.sleep(0.002)


class Feed(BaseHTTPRequestHandler):
    """Answers ``/ticks?from=N&limit=N``."""

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        first, limit = int(asked["from"][0]), int(asked["limit"][0])
        body = json.dumps({"ticks": TICKS[first : first + limit]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Be quiet."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Feed)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else None
    threading.Thread(target=go_on, args=(count,), daemon=True).start()
    print(server.server_port, flush=True)
    server.serve_forever()
