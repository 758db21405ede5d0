# docs: begin check
weft validate orders.yaml
weft deploy orders.yaml --plan
# docs: end check

# docs: begin deploy
weft deploy orders.yaml -m "first"
weft live show orders
# docs: end deploy

# docs: begin send
weft events send order.placed --idempotency-key order-1 \
  --payload '{"id": 1, "day": "2026-11-18", "customer": "ada", "price": 10}'
weft events send-many \
  '[{"name": "order.placed", "payload": {"id": 2, "day": "2026-11-18", "customer": "ada", "price": 5}}]'
# docs: end send

sed 's/max_attempts: 5/max_attempts: 9/' orders.yaml > more.yaml
# docs: begin again
weft deploy more.yaml --seen 1 -m "try harder"
weft deploy history orders
weft diff orders.yaml orders/live
# docs: end again

# docs: begin plan_rollback
weft deploy rollback orders --plan
# docs: end plan_rollback

# docs: begin rollback
weft deploy rollback orders -m "5 were enough"
weft deploy rollback orders --to 2
# docs: end rollback

sed 's/EUR/CHF/' more.yaml > francs.yaml
# docs: begin build
weft deploy francs.yaml
weft live jobs orders
weft deploy abandon orders
# docs: end build

# docs: begin look
weft live list
weft live units orders orders
weft live state orders totals
# docs: end look

# docs: begin hold
weft live pause orders totals --reason "the disk is full"
weft live resume orders totals
weft live units orders totals --state held
weft live retry orders totals
# docs: end hold

# docs: begin anew
weft live rematerialize orders totals --all --dry-run
weft live rematerialize orders totals --all
# docs: end anew

# docs: begin drain
weft live drain orders --yes
# docs: end drain
