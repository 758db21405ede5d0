# The commands of README about a server, from nothing: a token, curl, commands and a worker that go through it.
set -euo pipefail

weft dev --app shop --port 8400 > dev.txt 2> dev.log &
trap 'kill $(jobs -p); wait' EXIT
until grep -q "weft dev is ready" dev.txt; do
  kill -0 %1 && sleep 0.1
done

# docs: begin curl
url=http://127.0.0.1:8400
weft workflows push shop:welcome
token=$(weft tokens create laptop --role writer)
curl -sS -H "Authorization: Bearer $token" -H "Content-Type: application/json" \
  -d '{"workflow": "welcome", "inputs": {"name": "Ada"}}' "$url/api/v1/jobs"
# docs: end curl
echo

# docs: begin login
weft login "$url" --token - <<< "$token"
weft run welcome -i name=Grace
weft jobs list
weft context list
weft context use local
# docs: end login

# docs: begin worker
weft queues create far
far=$(weft tokens create far-away --role worker --queues far)
WEFT_TOKEN=$far weft worker --app shop --queues far --server "$url" &
weft tasks enqueue shop:greet --queue far --params '{"name": "Alan"}' --wait
# docs: end worker
