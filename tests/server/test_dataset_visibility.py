"""Who sees a dataset: admins, and who has a role that was granted; for all others it is not there."""

from __future__ import annotations

import httpx
import pytest
from server_scene import MakeHttp

import weft
from weft.contract.table import OPERATIONS
from writing import written

# Each call about one dataset that is not an admin's alone, with what it is sent.
CALLS = [each for each in OPERATIONS if each.call.startswith("datasets.") and "{name" in each.path]
BODIES = {
    "datasets.describe": {"description": "seen"}, "datasets.rollback": {}, "datasets.grant": {"roles": []},
    "datasets.hand_over": {"workflow": "etl", "node": "load"}, "datasets.undelete": {},
}  # fmt: skip


async def _asked(http: httpx.AsyncClient, call: str, name: str) -> httpx.Response:
    operation = next(each for each in CALLS if each.call == call)
    path = "/api/v1" + operation.path.replace("{name:name}", name)
    if operation.method == "GET":
        return await http.get(path)
    if operation.method == "DELETE":
        return await http.delete(path)
    return await http.post(path, json=BODIES[call])


@pytest.mark.parametrize("role", ["reader", "writer"])
async def test_a_dataset_is_not_there_for_who_has_none_of_its_roles(
    client: weft.Client, make_http: MakeHttp, role: str
) -> None:
    await written(client, "orders", 1, 2)
    for slug in ("finance", "sales"):
        await client.roles.create(slug)
        await client.users.add(slug, role=role)
        await client.roles.grant(slug, slug)
    seeing, blind, nobody = [await make_http(role, user=user) for user in ("finance", "sales", None)]
    for granted in ([], ["finance"]):
        await client.datasets.grant("orders", granted)
        for operation in CALLS:
            call, may = operation.call, operation.access.value in ("reader", role)
            name = "orders@1.1" if call == "datasets.rollback" else "orders"
            for http in (seeing, blind, nobody):
                answer = await _asked(http, call, name)
                if not may:
                    assert answer.status_code == 403, call
                elif http is seeing and granted:
                    assert answer.status_code == 200, (call, answer.text)
                else:
                    assert answer.status_code == 404, call
                    other = await _asked(http, call, name.replace("orders", "nothing"))
                    assert answer.text.replace("orders", "nothing") == other.text
    admin = await make_http("admin")
    gone = {"datasets.delete", "datasets.undelete"}
    for call in [*(each.call for each in CALLS if each.call not in gone), *sorted(gone)]:
        name = "orders@1.1" if call == "datasets.rollback" else "orders"
        assert (await _asked(admin, call, name)).status_code == 200, call


async def test_lists_have_only_what_is_seen_and_pages_skip_the_rest(client: weft.Client, make_http: MakeHttp) -> None:
    await client.roles.create("finance")
    await client.users.add("ada", role="reader")
    await client.roles.grant("finance", "ada")
    for number in range(6):
        await client.datasets.create(f"d{number}")
        await client.datasets.grant(f"d{number}", ["finance"] if number % 2 else [])
    ada, stranger, admin = [
        await make_http(role, user=user) for role, user in (("reader", "ada"), ("reader", None), ("admin", None))
    ]

    async def names(http: httpx.AsyncClient, query: str = "") -> list[str]:
        return [each["name"] for each in (await http.get(f"/api/v1/datasets{query}")).json()["items"]]

    assert await names(ada) == ["d1", "d3", "d5"]
    assert await names(ada, "?limit=2&after=d0") == ["d1", "d3"]
    assert await names(stranger) == []
    assert await names(admin) == [f"d{number}" for number in range(6)]
    await client.roles.revoke("finance", "ada")
    assert await names(ada) == []


async def test_a_role_that_is_not_there_is_refused_by_name(client: weft.Client) -> None:
    await client.datasets.create("orders")
    with pytest.raises(weft.InvalidInput, match="the org has no role 'nobody': make it by `weft roles create nobody`"):
        await client.datasets.grant("orders", ["nobody"])
    assert (await client.datasets.show("orders")).read_roles == ()


async def test_a_client_that_is_held_to_an_org_sees_nothing_unless_it_is_said_for_whom(client: weft.Client) -> None:
    await client.datasets.create("orders")
    held = client.of_org(await client.org_id(), "default")
    assert await held.datasets.list() == []
    with pytest.raises(weft.NotFound):
        await held.datasets.show("orders")
