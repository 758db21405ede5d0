"""What a server, or what stands before it, refuses for the moment costs a far attempt neither its steps nor its log."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate import AWAY, BRIEF, FULL, PROXY, RESET, Gate

import weft
from weft.worker.registry import Registry


@pytest.mark.parametrize("fault", [AWAY, BRIEF, FULL, PROXY])
async def test_an_attempt_waits_for_what_passes_and_all_that_it_has_printed_is_there(
    gate: tuple[Gate, str], client: weft.Client, tmp_path: Path, fault: str
) -> None:
    registry = Registry()

    @registry.task(name="talk", retry=weft.Retry(max_attempts=1))
    async def talk(ctx: weft.Context) -> int:
        gate[0].spoils, gate[0].faults = "/v1/task/step", [fault] * 2
        found = await ctx.step("work", lambda: 1)
        print("after it")
        # Also when a part of it is sent meanwhile, the rest is refused.
        gate[0].spoils, gate[0].faults = "/v1/task/log", [fault] * 3
        return found

    token = (await client.tokens.create("w", role="worker")).secret
    elsewhere = weft.Settings.load(environ={}, home=tmp_path / "elsewhere")
    async with (
        weft.RemoteClient(gate[1], token, settings=elsewhere) as far, weft.Worker(client=far, registry=registry)
    ):  # fmt: skip
        made = await client.enqueue("talk")
        assert await client.wait(made.id, 60) == 1
        assert await client.read_log(made.id) == b"after it\n"
    assert gate[0].faults == []


@pytest.mark.parametrize("fault", [AWAY, PROXY, RESET])
async def test_large_params_and_outputs_are_waited_for_as_steps_are(
    gate: tuple[Gate, str], client: weft.Client, tmp_path: Path, fault: str
) -> None:
    registry = Registry()

    @registry.task(name="large", retry=weft.Retry(max_attempts=1))
    async def large(text: str) -> str:
        assert gate[0].faults == []
        gate[0].faults = [fault] * 2
        return text[::-1]

    gate[0].spoils, gate[0].faults = "/v1/task/blob", [fault] * 2
    token = (await client.tokens.create("w", role="worker")).secret
    elsewhere = weft.Settings.load(environ={}, home=tmp_path / "elsewhere")
    async with (
        weft.RemoteClient(gate[1], token, settings=elsewhere) as far, weft.Worker(client=far, registry=registry)
    ):  # fmt: skip
        made = await client.enqueue("large", {"text": "xy" * client.settings.inline_limit})
        assert await client.wait(made.id, 60) == "yx" * client.settings.inline_limit
    assert gate[0].faults == []
