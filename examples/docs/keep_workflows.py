"""Keeps a workflow, changes it, and looks back."""

import asyncio
from datetime import UTC, datetime

import weft

FLOW = """
workflow_id: nightly
nodes:
  START: {type: start, next: fetch}
  fetch: {handler: fetch, params: {size: 1}, next: END}
  END: {type: end}
"""


async def main() -> None:
    async with weft.Client() as client:
        # docs: begin library
        workflows = client.workflows
        await workflows.push(FLOW, message="first")
        await workflows.patch("nightly", set={"nodes.fetch.params.size": 3}, message="larger")
        await workflows.undo("nightly")
        shown = await workflows.show("nightly")
        print(shown.tag, shown.data["nodes"]["fetch"]["params"])
        # docs: end library
        # docs: begin lines
        then = datetime.now(UTC)
        larger = await workflows.patch("nightly", set={"nodes.fetch.params.size": 5}, message="larger")
        await workflows.branch("nightly/other", "nightly")
        await workflows.patch("nightly/other", set={"nodes.fetch.params.size": 7})
        await workflows.patch("nightly", set={"nodes.fetch.params.size": 6, "nodes.fetch.queue": "slow"})
        try:
            await workflows.merge("nightly/other", into="nightly")
        except weft.MergeConflict as problem:
            for conflict in problem.conflicts:
                print(conflict)
        await workflows.merge("nightly/other", into="nightly", prefer="theirs")
        await workflows.revert("nightly", larger.artifact_id, prefer="theirs")
        for path, change in (await workflows.blame("nightly")).items():
            print(*path, change.actor, change.message)
        before = await workflows.show("nightly", at=then)
        print(before.data["nodes"]["fetch"]["params"], await workflows.fsck())
        # docs: end lines
        try:
            await workflows.patch("nightly", set={"nodes.fetch.next": "nowhere"})
        except weft.InvalidDefinition as problem:
            print(problem.problems[0])


asyncio.run(main())
