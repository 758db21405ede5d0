#!/usr/bin/env bash
# The HTTP API by curl: a token, a definition, a job, pages, errors, keys and ETags.
set -euo pipefail

port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')

# docs: begin token
weft queues create rasters
export WEFT_TOKEN
WEFT_TOKEN=$(weft tokens create shell --role writer)
# docs: end token

weft server --port "$port" 2> server.log &
trap 'kill %1; wait' EXIT
export WEFT_SERVER="http://127.0.0.1:$port"
until curl -s -o ready.json "$WEFT_SERVER/readyz"; do sleep 0.1; done

# docs: begin push
auth="Authorization: Bearer $WEFT_TOKEN"
curl -sS -H "$auth" -H "Content-Type: application/yaml" --data-binary @tile_raster.yaml \
  "$WEFT_SERVER/api/v1/workflows?message=first"
# docs: end push
echo

# docs: begin submit
curl -sS -H "$auth" -H "Content-Type: application/json" -H "Idempotency-Key: alps-2026-11-14" \
  -d '{"workflow": "tile_raster", "inputs": {"blob": "scans/alps.tif"}}' "$WEFT_SERVER/api/v1/jobs"
# docs: end submit
echo
curl -sS -H "$auth" -H "Content-Type: application/json" -H "Idempotency-Key: alps-2026-11-14" \
  -d '{"workflow": "tile_raster", "inputs": {"blob": "scans/alps.tif"}}' "$WEFT_SERVER/api/v1/jobs"
echo
curl -sS -o other.json -H "$auth" -H "Content-Type: application/json" \
  -d '{"workflow": "tile_raster", "inputs": {"blob": "scans/jura.tif"}}' "$WEFT_SERVER/api/v1/jobs"

# docs: begin why
curl -sS -X POST -H "$auth" -H "Weft-Reason: 20 %25 mehr f%C3%BCr M%C3%BCnchen" \
  "$WEFT_SERVER/api/v1/queues/rasters/resume"
# docs: end why

# docs: begin pages
curl -sS -H "$auth" "$WEFT_SERVER/api/v1/jobs?state=pending&state=running&limit=1" > page.json
next=$(python3 -c 'import json; print(json.load(open("page.json"))["next"])')
curl -sS -H "$auth" "$WEFT_SERVER/api/v1/jobs?state=pending&state=running&limit=1&before=$next"
# docs: end pages
echo

# docs: begin error
curl -sS -H "$auth" -H "Content-Type: application/json" -d '{"workflow": "tile_raster", "priority": "high"}' \
  "$WEFT_SERVER/api/v1/jobs"
# docs: end error
echo

# docs: begin etag
curl -sS -H "$auth" -D headers.txt -o tag.json "$WEFT_SERVER/api/v1/tags/tile_raster%2Fmain"
etag=$(sed -n 's/^etag: *\("[^"]*"\).*/\1/p' headers.txt)
curl -sS -o changed.json -w '%{http_code}\n' -H "$auth" -H "Content-Type: application/json" -H "If-Match: $etag" \
  -d '{"set": {"nodes.tiles.max_parallel": 4}}' "$WEFT_SERVER/api/v1/tags/tile_raster%2Fmain/patch"
# docs: end etag
curl -sS -o changed.json -w '%{http_code}\n' -H "$auth" -H "Content-Type: application/json" -H "If-Match: $etag" \
  -d '{"set": {"nodes.tiles.max_parallel": 5}}' "$WEFT_SERVER/api/v1/tags/tile_raster%2Fmain/patch"
