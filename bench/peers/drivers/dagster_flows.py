"""Dagster: a job runs in the caller's process; events are rows of SQLite, outputs are files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster
from flows import WARM_UP_TASKS, Flows, clocked_fib


@dagster.op(ins={"before": dagster.In(dagster.Nothing)}, out=dagster.Out(dagster.Nothing))
def noop() -> None:
    pass


@dagster.op(ins={"before": dagster.In(dagster.Nothing)})
def compute() -> float:
    return clocked_fib()


@dagster.op(out=dagster.DynamicOut(int), config_schema={"width": int})
def spread(context: dagster.OpExecutionContext) -> Iterator[dagster.DynamicOutput[int]]:
    for number in range(context.op_config["width"]):
        yield dagster.DynamicOutput(number, mapping_key=str(number))


@dagster.op
def take(number: int) -> int:
    return number


@dagster.op
def gather(numbers: list[int]) -> None:
    pass


@dagster.job(executor_def=dagster.in_process_executor)
def fan() -> None:
    gather(spread().map(take).collect())


def in_a_row(task: dagster.OpDefinition, count: int) -> dagster.JobDefinition:
    """Define a job of so many tasks, one after the other."""

    @dagster.job(name=f"{task.name}_{count}", executor_def=dagster.in_process_executor)
    def row() -> None:
        last = task.alias("n0")()
        for number in range(1, count):
            last = task.alias(f"n{number}")(last)

    return row


class Driver(Flows):
    distribution = "dagster"
    setting = "in-process executor"
    keeps = "SQLite files"

    @contextmanager
    def running(self) -> Iterator[None]:
        os.environ["DAGSTER_HOME"] = str(self.home)
        Path(self.home, "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        sizes = (WARM_UP_TASKS, self.count)
        # Its own code defines jobs when it is loaded, not when they are run.
        self._jobs = {(task.name, size): in_a_row(task, size) for task in (noop, compute) for size in sizes}
        with dagster.DagsterInstance.get() as self._instance:
            yield

    def chain(self, tasks: int) -> None:
        self._execute(self._jobs["noop", tasks])

    def fan(self, width: int) -> None:
        self._execute(fan, {"ops": {"spread": {"config": {"width": width}}}})

    def fib(self, tasks: int) -> None:
        self._result = self._execute(self._jobs["compute", tasks])

    def clocked(self) -> float:
        return float(sum(self._result.output_for_node(f"n{number}") for number in range(self.count)))

    def _execute(
        self, job: dagster.JobDefinition, config: dict[str, object] | None = None
    ) -> dagster.ExecuteInProcessResult:
        result = job.execute_in_process(instance=self._instance, run_config=config)
        assert result.success
        return result
