"""``weft metrics``: prints numbers about jobs, tasks and workers."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app

app = new_app()


@app.command()
def metrics(
    prometheus: Annotated[bool, typer.Option("--prometheus", help="Print the text that Prometheus reads.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print numbers about jobs, tasks and workers; counters never fall, also when the history is pruned."""
    from weft.cli.calls import call
    from weft.cli.output import as_record, print_json, print_table
    from weft.core.errors import InvalidInput
    from weft.jobs.metrics import exposition

    if prometheus and as_json:
        raise InvalidInput("--prometheus", "give either it or --json, not both")
    found = call(lambda client: client.metrics())
    if as_json:
        print_json({"metrics": [as_record(metric) for metric in found]})
    elif prometheus:
        print(exposition(found), end="")
    else:
        rows = [
            (
                metric.name + (f"_{sample.part}" if sample.part else ""),
                ", ".join(f"{key}={value}" for key, value in sample.labels.items()),
                f"{sample.value:,.3f}".rstrip("0").rstrip("."),
            )
            for metric in found
            for sample in metric.samples
        ]
        print_table(("METRIC", "OF~", "VALUE>"), rows, empty="no metrics")
