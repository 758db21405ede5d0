#!/usr/bin/env bash
# The limits of a queue from the command line.
set -euo pipefail

weft queues create mail
# docs: begin limit
weft queues limit mail --max 20
weft queues limit mail --max 2 --per-key
weft queues limit mail --max 5 --key acme
weft queues limit mail --key acme
weft queues limit mail --none
# docs: end limit
