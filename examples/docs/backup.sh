#!/usr/bin/env bash
# Back up and restore the embedded database.
set -euo pipefail

weft queues create nightly
# docs: begin backup
weft db backup weft.dump
# docs: end backup

# docs: begin restore
weft db restore weft.dump --yes
# docs: end restore

# docs: begin look
weft db status
weft db psql -c 'select count(*) from weft.tasks'
# docs: end look
