"""The measurements of other systems: what fails is left out, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import select
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from bench import comparison, jobs  # noqa: E402
from bench.peers import queues, shapes  # noqa: E402
from bench.peers.environments import PEERS, PeerFailed, run_command  # noqa: E402
from bench.report import Figure  # noqa: E402
from docs.pages import figures as page  # noqa: E402

HERE = ROOT / "bench" / "peers"
_LEAVES_A_CHILD = """
import subprocess, sys
child = subprocess.Popen(["sleep", "60"], process_group=0)
print(child.pid)
sys.exit(1)
"""


def _figures(peer: str, **found: float) -> shapes.ShapeFigures:
    run = {"version": "1", "setting": "default", "keeps": "in memory", **found}
    return shapes.summarise(peer, shapes.Sizes(), [run])


def test_every_peer_has_pinned_requirements_and_a_driver() -> None:
    assert set(PEERS) == {*queues.DEFAULT_TASKS, *shapes.DEFAULT_SIZES}
    for peer in PEERS:
        lines = (HERE / "requirements" / f"{peer}.txt").read_text(encoding="utf-8").splitlines()
        assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line) for line in lines), peer
    drivers = {path.stem for path in (HERE / "drivers").glob("*.py")}
    assert {f"{peer.replace('-', '_')}_driver" for peer in queues.DEFAULT_TASKS} <= drivers
    assert {f"{peer}_flows" for peer in shapes.DEFAULT_SIZES} <= drivers


def test_a_command_that_fails_is_told_with_its_last_words() -> None:
    with pytest.raises(PeerFailed, match=r"ray: chain failed, and is left out(.|\n)*no memory left"):
        run_command("ray", "chain", [sys.executable, "-c", "raise SystemExit('no memory left')"])


def test_a_driver_that_ends_without_its_servers_leaves_none_behind() -> None:
    with pytest.raises(PeerFailed) as failure:
        run_command("ray", "chain", [sys.executable, "-c", _LEAVES_A_CHILD])
    with suppress(ProcessLookupError):
        ended = os.pidfd_open(int(str(failure.value).split()[-1]))
        assert select.select([ended], [], [], 20)[0] == [ended]
        os.close(ended)


def test_a_command_that_takes_too_long_is_ended_and_told() -> None:
    with pytest.raises(PeerFailed, match="no end after 0 s"):
        run_command("ray", "chain", ["sleep", "60"], timeout=0.1)


def test_a_shape_that_a_peer_cannot_do_is_a_dash() -> None:
    found = _figures("ray", hop_ms=1.5, fib_overhead_s=0.06)
    assert (found.hop_ms, found.fan_s, found.fib_overhead_s) == (1.5, None, 0.06)
    assert "–" in shapes.table([found])


def test_weft_is_set_beside_the_fastest_that_has_the_figure() -> None:
    ours = _figures("weft", hop_ms=0.5, fan_s=0.1, fib_overhead_s=0.05)
    peers = [_figures("ray", hop_ms=1.5), _figures("celery", hop_ms=2.0, fan_s=1.5)]
    (hop,) = comparison.beside_the_fastest("chain, a hop", "hop_ms", "ms", ours, peers)
    assert (hop.value, hop.meets, hop.beside) == (3.0, True, "ray 1.50 ms")
    (fan,) = comparison.beside_the_fastest("fan", "fan_s", "s", ours, peers)
    assert fan.beside == "celery 1.50 s"
    assert comparison.beside_the_fastest("fib", "fib_overhead_s", "s", ours, peers) == []


def test_wefts_own_figures_of_the_shapes_are_a_row_of_the_table() -> None:
    measured = [
        Figure("chain of 1,000 tasks, a hop", 0.9, "ms", "", True, runs=[0.8, 0.9, 1.0]),
        Figure(jobs.FAN, 0.12, "s", "", True, runs=[0.12]),
        Figure(jobs.FIB_OVERHEAD, 0.04, "s", "", True, runs=[0.04]),
    ]
    ours = comparison.own_shapes(measured)
    assert ours is not None
    assert (ours.sizes.chain, ours.hop_ms, ours.fan_s, ours.fib_overhead_s) == (1000, 0.9, 0.12, 0.04)
    assert comparison.own_shapes(measured[:2]) is None


def test_the_page_on_speed_says_where_a_size_is_another() -> None:
    small = shapes.Sizes(chain=20, fan=100)
    airflow = shapes.summarise(
        "airflow", small, [{"version": "3", "setting": "", "keeps": "PostgreSQL", "hop_ms": 1060.0, "fan_s": 18.8}]
    )
    lines = page.shapes_table([asdict(airflow)])
    assert lines[-1] == "| airflow 3 | PostgreSQL | 1,060 ms, of 20 | 18.80 s, 100 wide | – |"
