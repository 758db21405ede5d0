#!/usr/bin/env bash
# Workers without a database: one that uses nothing but HTTP, and Weft's own.
set -euo pipefail

# docs: begin token
weft queues create mail
WEFT_TOKEN=$(weft tokens create far-away --role worker --queues default,mail)
# docs: end token

weft server --port 0 2> server.log &
server=$!
trap 'kill $(jobs -p); wait' EXIT
until WEFT_SERVER=$(grep -o 'http://[0-9.:]*' server.log); do
  kill -0 "$server" && sleep 0.1
done

weft tasks enqueue text:count --params '{"text": "one two three"}' > counted
weft tasks enqueue text:break --max-attempts 1 > broken
WEFT_SERVER=$WEFT_SERVER WEFT_TOKEN=$WEFT_TOKEN MOST_TASKS=2 python3 any_language.py
weft tasks list

# docs: begin worker
WEFT_TOKEN=$WEFT_TOKEN weft worker --app reports --queues default,mail --server "$WEFT_SERVER" &
# docs: end worker

weft tasks enqueue report:mail --queue mail --params '{"to": "ada@example.com"}' --wait
