"""Definitions that several tests read."""

from __future__ import annotations

# Section 8.1 of spec 5, as it stands there: `process_fa` is named and never written.
SPEC_5 = """\
workflow_id: raster_processing
name: Raster Processing Pipeline
version: 1

inputs:
  container_name:
    type: string
    required: true
  blob_name:
    type: string
    required: true
  target_crs:
    type: string
    default: "EPSG:3857"

nodes:
  START:
    type: start
    next: validate

  validate:
    type: task
    handler: raster_validate
    queue: functionapp-tasks
    params:
      container_name: "{{ inputs.container_name }}"
      blob_name: "{{ inputs.blob_name }}"
    next: route_by_size

  route_by_size:
    type: conditional
    condition_field: "{{ nodes.validate.output.file_size_mb }}"
    branches:
      - condition: "< 100"
        next: process_fa
      - default: true
        next: process_docker

  process_docker:
    type: task
    handler: raster_cog_docker
    queue: container-tasks
    timeout_seconds: 7200
    params:
      source_url: "{{ nodes.validate.output.blob_url }}"
    next: END

  END:
    type: end
"""

SPEC_5_MENDED = (
    SPEC_5
    + """
  process_fa:
    handler: raster_cog
    retry: {max_attempts: 3, backoff: exponential, initial_delay_seconds: 5, max_delay_seconds: 300}
    next: END
"""
)

# Section 6 of the design.
TILE_RASTER = """\
workflow_id: tile_raster
inputs: {blob: {type: string, required: true}, size: {type: integer, default: 256, minimum: 16}}
nodes:
  START:    {type: start, next: scheme}
  scheme:   {type: task, handler: raster.generate_tiling_scheme, params: {blob: "{{ inputs.blob }}"}, next: tiles}
  tiles:
    type: fan_out
    items: "{{ nodes.scheme.output.tiles }}"
    task: {handler: raster.process_tile_batch, queue: container-tasks, params: {tile: "{{ item }}", n: "{{ index }}"}, retry: {max_attempts: 5}}
    max_parallel: 8            # optional
    next: collect
  collect:  {type: fan_in, next: END}      # output.results: a list in item order
  END:      {type: end, output: {count: "{{ nodes.collect.output.results | length }}"}}
"""  # noqa: E501

# Every type of node and nearly every field.
EVERYTHING = """\
workflow_id: etl/everything
name: Everything
description: |
  One of each.
version: 3
labels: {team: maps}
inputs:
  url: {type: string, required: true, pattern: "^https?://", description: where from}
  count: {type: integer, default: 3, minimum: 1, maximum: 10}
  tags: {type: array, default: [], max_length: 5}
  mode: {type: string, default: fast, enum: [fast, slow]}
defaults: {queue: general, timeout_seconds: 10m, retry: {max_attempts: 3, backoff: linear}}
on_failure: finish_independent
timeout_seconds: 2h
groups:
  extract: {next: sum, description: all that is fetched}
nodes:
  START: {type: start, next: [extract, ask]}
  fetch: {handler: http.get, params: {url: "{{ inputs.url }}"}, group: extract, next: clean, cache: 1h}
  clean: {handler: text.clean, params: {text: "{{ nodes.fetch.output }}"}, group: extract/raw, allow_failure: true}
  more: {handler: http.get, params: {url: "{{ inputs.url }}/more"}, group: extract, priority: 5, concurrency_key: "{{ inputs.url }}"}
  sum: {handler: math.sum, params: {all: ["{{ nodes.clean.output }}", "{{ nodes.more.output }}"]}, next: parts}
  parts:
    type: fan_out
    items: "{{ range(inputs.count) }}"
    task: {handler: part, params: {n: "{{ index }}", of: "{{ item }}"}, retry: {max_attempts: 5}, heartbeat_timeout_seconds: 30}
    max_parallel: 4
    next: join
  join: {type: fan_in, next: route}
  route:
    type: conditional
    condition_field: "{{ nodes.join.output.results | length }}"
    branches:
      - {condition: "> 2", next: sub}
      - {condition: "{{ inputs.mode == 'slow' }}", next: file}
      - {default: true, next: END}
  sub: {type: workflow, workflow: etl/other, inputs: {n: "{{ nodes.sum.output }}"}, next: END}
  file: {type: wait, for: event, event: file.arrived, match: {path: "{{ inputs.url }}"}, timeout_seconds: 1d, on_timeout: skip, next: END}
  ask: {type: wait, for: approval, form: {reason: {type: string}}, next: END}
  END: {type: end, output: {total: "{{ nodes.sum.output }}", job: "{{ job.id }}"}}
"""  # noqa: E501
