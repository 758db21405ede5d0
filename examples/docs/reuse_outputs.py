"""Takes outputs of earlier tasks instead of making them again."""

import asyncio
from datetime import timedelta

import weft


# docs: begin handler
@weft.task(name="map.elevation", cache=timedelta(days=7))
async def elevation(place: str) -> int:
    print("asking for", place)
    return len(place) * 100


# docs: end handler


# docs: begin node
DEFINITION = {
    "workflow_id": "heights",
    "inputs": {"places": {"type": "array"}},
    "nodes": {
        "START": {"type": "start", "next": "look"},
        "look": {
            "type": "fan_out",
            "items": "{{ inputs.places }}",
            "task": {"handler": "map.elevation", "params": {"place": "{{ item }}"}, "cache": "7d"},
            "next": "all",
        },
        "all": {"type": "fan_in", "next": "END"},
        "END": {"type": "end", "output": "{{ nodes.all.output.results }}"},
    },
}
# docs: end node


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client), weft.Orchestrator(client=client):
        first = await client.jobs.submit(DEFINITION, {"places": ["Ulm", "Bern"]})
        print((await client.jobs.wait(first.id, timeout=30)).result)
        # docs: begin again
        again = await client.jobs.submit(DEFINITION, {"places": ["Bern", "Rome", "Ulm"]})
        print((await client.jobs.wait(again.id, timeout=30)).result)
        for event in (await client.jobs.events(again.id)).events:
            if event.data.get("reason") == "cached":
                print("item", event.item, "as task", event.data["kept_id"], "gave it")
        # docs: end again

        # docs: begin ignore
        fresh = await client.jobs.submit(DEFINITION, {"places": ["Ulm"]}, cache="refresh")
        print((await client.jobs.wait(fresh.id, timeout=30)).result)
        # docs: end ignore

        # docs: begin explain
        for node in await client.jobs.nodes(fresh.id):
            print(node.node, (await client.explain(node.id)).text)
        # docs: end explain

        # docs: begin clear
        for each in await client.cached_outputs():
            print(each.handler, each.outputs)
        print(await client.clear_cache("map.elevation"))
        # docs: end clear


asyncio.run(main())
