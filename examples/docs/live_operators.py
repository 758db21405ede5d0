"""An operator of one's own, and a DAG that has each operator that comes with Weft."""

from pathlib import Path

import weft

FOLDER = Path(__file__).parent


# docs: begin own
@weft.operator("longest_run")
async def longest_run(live: weft.LiveContext) -> None:
    """Tell how long a column has risen without a break, each time that it is longer than ever."""
    column = live.config["column"]
    state = await live.state() or {"last": None, "run": 0, "longest": 0}
    told = []
    for value in (await live.changes(columns=[column]))[column].to_pylist():
        state["run"] = state["run"] + 1 if state["last"] is not None and value > state["last"] else 0
        state["last"] = value
        if state["run"] > state["longest"]:
            state["longest"] = state["run"]
            told.append({"run": state["run"], "value": value})
    if told:
        await live.write(told)
    await live.set_state(state)


# docs: end own


definition = weft.read_dag(FOLDER / "live_operators.yaml")
for name, job in definition.jobs.items():
    print(name, job.operator)
