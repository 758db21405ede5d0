#!/usr/bin/env bash
# Who there is, and by which tokens programs act.
set -euo pipefail

# docs: begin first
weft orgs create globex --admin ada
weft orgs token globex --user ada --expires-in 1d
# docs: end first

# docs: begin org
weft orgs create acme --name "Acme Ltd"
export WEFT_ORG=acme
# docs: end org

# docs: begin users
weft users add ada --role admin --email ada@example.com
weft users add bob
weft users change bob --role writer
weft users deactivate bob
weft users activate bob
weft users list
# docs: end users

# docs: begin roles
weft roles create finance --name Finance
weft roles grant finance ada
weft roles list
# docs: end roles

# docs: begin tokens
secret=$(weft tokens create nightly --role writer --expires-in 90d)
weft tokens create laptop --role admin --user ada
weft tokens create gpu-workers --role worker --queues render,train
weft tokens list
# docs: end tokens
test -n "$secret"

# docs: begin revoke
id=$(weft tokens list --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"][0]["id"])')
weft tokens revoke "$id"
weft audit list --verb revoke --since 1h
# docs: end revoke

# docs: begin browser
weft tokens sign-in --user ada --role admin
# docs: end browser

# docs: begin verify
weft audit verify
# docs: end verify
