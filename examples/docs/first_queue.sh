#!/usr/bin/env bash
# The commands of the tutorial "Your first queue", in the order in which it shows them.
set -euo pipefail

# docs: begin worker
weft queues create mail
weft worker --app reports --queues default,mail &
# docs: end worker
trap 'kill $! && wait' EXIT

# docs: begin enqueue
weft tasks enqueue report:mail --queue mail --params '{"to": "ada@example.com"}' --wait
# docs: end enqueue

# docs: begin fail
weft tasks enqueue report:total --params '{"path": "november.csv"}' --max-attempts 2 --wait ||
  echo "ended with exit code $?"
# docs: end fail

# docs: begin dead
weft dead list
id=$(weft dead list --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tasks"][0]["id"])')
weft tasks show "$id"
weft tasks logs "$id"
# docs: end dead

# docs: begin replay
printf '12.5\n30\n' > november.csv
weft dead replay "$id"
weft tasks logs "$id" --follow
weft tasks show "$id"
# docs: end replay

# docs: begin look
weft queues list
weft workers list
weft tasks list --state completed
# docs: end look
