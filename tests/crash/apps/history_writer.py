"""Several writers of one tag, each with a client of its own; notes what was acknowledged, and ends when all have acted.

It begins when it is told to by a line on its standard input, so that the writers of all processes begin together.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import uvloop

import weft
from crash.history_acts import settings_for

VERBS = ("patch", "patch", "patch", "undo", "redo", "move", "merge", "push")
# What may keep a writer from acting: there is nothing to take back. Others who are quicker do not, for long.
REFUSALS = (weft.StateConflict,)


class Writer:
    """One writer, drawn from a seed; each of its acts has a message of its own, and adds what is named after it."""

    def __init__(self, client: weft.Client, name: str, config: dict[str, Any]) -> None:
        self._workflows = client.workflows
        self._name = name
        self._tag = config["tag"]
        self._first = config["first"]
        self._acts = config["acts"]
        self._random = random.Random(name)
        self.noted: list[dict[str, Any]] = []

    async def run(self) -> None:
        """Act so many times."""
        await self._workflows.branch(self._branch, self._first)
        for number in range(self._acts):
            message = f"{self._name}_{number}"
            verb = self._random.choice(VERBS)
            try:
                done = await getattr(self, f"_{verb}")(message)
            except REFUSALS as problem:
                self._note(message, verb, refused=type(problem).__name__)
            else:
                version = done.tag_version if isinstance(done, weft.Pushed) else done.version
                self._note(message, verb, version=version, created=getattr(done, "created", True))

    def _note(self, message: str, verb: str, **what: Any) -> None:
        self.noted.append({"actor": self._name, "message": message, "verb": verb, **what})

    @property
    def _branch(self) -> str:
        return f"{self._tag.partition('/')[0]}/{self._name}"

    def _param(self, message: str) -> dict[str, Any]:
        return {"op": "add", "path": f"/nodes/load/params/{message}", "value": message}

    async def _patch(self, message: str) -> weft.Pushed:
        return await self._workflows.patch(self._tag, [self._param(message)], message=message)

    async def _push(self, message: str) -> weft.Pushed:
        shown = await self._workflows.show(self._tag)
        nodes = dict(shown.data["nodes"])
        nodes["load"] = {**nodes["load"], "params": {**nodes["load"]["params"], message: message}}
        return await self._workflows.push({**shown.data, "nodes": nodes}, tag=self._tag, message=message)

    async def _undo(self, message: str) -> weft.Tag:
        return await self._workflows.undo(self._tag, message=message)

    async def _redo(self, message: str) -> weft.Tag:
        return await self._workflows.redo(self._tag, message=message)

    async def _move(self, message: str) -> weft.Tag:
        return await self._workflows.move(self._tag, self._first, message=message)

    async def _merge(self, message: str) -> weft.Pushed:
        await self._workflows.patch(self._branch, [self._param(message)])
        return await self._workflows.merge(self._branch, self._tag, message=message)


async def main(config: dict[str, Any]) -> None:
    """Let the writers act, and write down what they were told."""
    writers = []
    for name in config["writers"]:
        client = weft.Client(settings=settings_for(config["url"], config["home"], name))
        writers.append(Writer(await client.__aenter__(), name, config))
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(writer.run() for writer in writers))
    noted = [note for writer in writers for note in writer.noted]
    Path(config["notes"]).write_text(json.dumps(noted), encoding="utf-8")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(json.loads(sys.argv[1])))
