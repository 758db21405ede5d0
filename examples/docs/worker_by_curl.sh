#!/usr/bin/env bash
# The whole life of a worker by curl alone: what a worker in any language sends, in its order.
set -euo pipefail

WEFT_TOKEN=$(weft tokens create shell --role worker)
weft server --port 0 2> server.log &
server=$!
trap 'kill $(jobs -p); wait' EXIT
until WEFT_SERVER=$(grep -o 'http://[0-9.:]*' server.log); do
  kill -0 "$server" && sleep 0.1
done
for text in "one two" "three" "four"; do
  weft tasks enqueue text:count --params "{\"text\": \"$text\"}" > made.txt
done

# docs: begin ask
ask() {
  curl -sS --fail-with-body -w '\n' -H "Authorization: Bearer $WEFT_TOKEN" -H "Content-Type: application/json" \
    -d "$2" "$WEFT_SERVER$1"
}
take() { sed -E "s/.*\"$1\":\"([^\"]*)\".*/\1/"; }
# docs: end ask

# docs: begin register
ask /v1/worker/register '{"queues": ["default"], "handlers": ["text:count"], "hostname": "shell"}' | tee worker.json
worker=$(take worker_id < worker.json)
# docs: end register

# docs: begin claim
claim() {
  ask /v1/task/claim "{\"worker_id\": \"$worker\", \"limit\": 1, \"wait\": 30}" | tee task.json
  lease="\"task_id\": \"$(take task_id < task.json)\", \"lease_token\": \"$(take lease_token < task.json)\""
}
claim
# docs: end claim

# docs: begin heartbeat
ask /v1/worker/heartbeat "{\"worker_id\": \"$worker\", \"tasks\": [{$lease}]}"
# docs: end heartbeat

# docs: begin attempt
ask /v1/task/log "{$lease, \"offset\": 0, \"text\": \"I count\\n\"}"
ask /v1/task/step "{$lease, \"name\": \"split\", \"data\": [\"one\", \"two\"], \"took\": 0.1}"
ask /v1/task/step/load "{$lease, \"name\": \"split\"}"
# docs: end attempt

# docs: begin complete
ask /v1/task/complete "{$lease, \"output\": {\"words\": 2}}"
# docs: end complete

# docs: begin fail
claim
ask /v1/task/fail "{$lease, \"error\": {\"type\": \"Mute\", \"message\": \"no\"}, \"retryable\": false}"
# docs: end fail

# docs: begin release
claim
ask /v1/task/release "{$lease}"
ask /v1/worker/deregister "{\"worker_id\": \"$worker\"}"
# docs: end release

# docs: begin late
ask /v1/task/complete "{$lease, \"output\": 1}" || echo "refused: it holds nothing any more"
# docs: end late
weft tasks list
