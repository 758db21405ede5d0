#!/usr/bin/env bash
# What to look at, and what to do.
set -euo pipefail

# docs: begin look
weft queues list
weft workers list
weft tasks list --state ready --state running --limit 20
weft dead list
weft outbox list --state failed
# docs: end look

# docs: begin measure
weft health || echo "something is not well"
weft metrics
weft metrics --prometheus > weft.prom
# docs: end measure

# docs: begin act
weft queues create mail
weft queues pause mail
weft queues resume mail
weft dead replay --all --queue mail
weft dead purge --older-than 30d --yes
# docs: end act
