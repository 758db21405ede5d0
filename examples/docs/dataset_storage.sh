python datasets.py
mkdir -p weather/day=2026-11-14
weft query "select 3.5 as degrees" --format parquet --output weather/day=2026-11-14/1.parquet

# docs: begin register
export WEFT_DATA_OUTSIDE="$PWD/weather"
weft datasets register weather "$PWD/weather" --partition-by hive --reason "all of November"
weft query "select day, degrees from weather"
# docs: end register

# docs: begin table
weft datasets create totals --storage postgres
# docs: end table

# docs: begin hand_over
weft datasets hand-over orders --to shop/import --reason "the import has moved into a workflow"
# docs: end hand_over

# docs: begin delete
weft datasets delete orders
weft datasets delete orders --yes --reason "nobody reads it"
weft datasets undelete orders
# docs: end delete
