"""SQL of a live DAG that cannot be read is told before anything is deployed, all of it, each with its place."""

from __future__ import annotations

import pytest

import weft
from far import with_and_without_a_database

DAG = """\
dag: market
jobs:
  ticks:
    {{activation: source, operator: take, source: {{kind: event, event: tick}}, outputs: [ticks]}}
  spent:
    activation: reactive
    operator: sql_transform
    execution_strategy: PerUpdate
    inputs: [ticks]
    outputs: [spent]
    config:
      sql: |
        select id,
          {column}
  candles:
    activation: reactive
    operator: range_aggregator
    execution_strategy: PerUpdate
    inputs: [ticks]
    outputs: [candles]
    config: {{column: at, size: 1m, aggregates: {{first: first(price), high: "{aggregate}"}}}}
  alerts:
    activation: reactive
    operator: alert_evaluate
    execution_strategy: PerUpdate
    inputs: [ticks]
    outputs: [alerts]
    update_strategy: append
    unique_key: [alert_id]
    config: {{condition: "{condition}", query: "select * from {table}"}}
"""


@with_and_without_a_database
async def test_sql_that_cannot_be_read_is_told_with_its_place_and_nothing_is_deployed(client: weft.Client) -> None:
    wrong = DAG.format(column="price from where", aggregate="max(price", condition="price >", table="tickz")
    for act in (client.live.plan, client.live.deploy):
        with pytest.raises(weft.InvalidDefinition) as caught:
            await act(wrong)
        told = [(each.line, each.code, each.message) for each in caught.value.problems]
        assert [(line, code) for line, code, _ in told] == [(12, "sql"), (21, "sql"), (30, "sql"), (30, "sql")]
        assert told[0][2].startswith("line 2, column ")
        assert "there is no table 'tickz'" in told[3][2]
        assert "Did you mean 'ticks'?" in told[3][2]
    assert await client.live.list() == []
    with pytest.raises(weft.InvalidDefinition, match="syntax error"):
        await client.live.plan(DAG.format(column="1); drop table x", aggregate="1", condition="true", table="ticks"))
    done = await client.live.deploy(
        DAG.format(
            column="price from CHANGES c join ticks using (id)",
            aggregate="max(price)",
            condition="price > 1",
            table="ticks",
        )
    )
    assert done.version == 1
