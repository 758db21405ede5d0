#!/usr/bin/env bash
# Bring a database of your own to the schema of this release, and back.
set -euo pipefail

# docs: begin upgrade
weft migrate upgrade --sql > upgrade.sql # what it would do, for whoever has to look at it first
weft migrate upgrade
weft migrate current
weft migrate history
# docs: end upgrade

# docs: begin downgrade
weft migrate downgrade base --yes
# docs: end downgrade
