"""Keeps a workflow, changes it, and looks back."""

import asyncio

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
        try:
            await workflows.patch("nightly", set={"nodes.fetch.next": "nowhere"})
        except weft.InvalidDefinition as problem:
            print(problem.problems[0])


asyncio.run(main())
