"""The shapes as Airflow's DAGs; it reads this file itself, so the sizes come in the environment."""

import os

from airflow.sdk import dag, task
from flows import WARM_UP_TASKS, clocked_fib


@task
def noop() -> None:
    pass


@task
def compute() -> float:
    return clocked_fib()


def in_a_row(name, each, count):
    @dag(dag_id=f"{name}_{count}", schedule=None)
    def row():
        last = each.override(task_id="n0")()
        for number in range(1, count):
            following = each.override(task_id=f"n{number}")()
            last >> following
            last = following

    return row()


def fanned(width):
    @dag(dag_id=f"fan_{width}", schedule=None)
    def fan():
        @task
        def spread() -> list[int]:
            return list(range(width))

        @task
        def take(number: int) -> int:
            return number

        @task
        def gather(numbers: list[int]) -> None:
            pass

        gather(take.expand(number=spread()))

    return fan()


for size in (WARM_UP_TASKS, int(os.environ["PEER_COUNT"])):
    in_a_row("chain", noop, size)
    in_a_row("fib", compute, size)
    fanned(size)
