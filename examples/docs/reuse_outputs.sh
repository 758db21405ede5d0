# docs: begin run
weft run tile_raster.yaml --app rasters -i blob=scans/alps.tif --refresh
# docs: end run

task=$(weft tasks list --limit 1 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tasks"][0]["id"])')
# docs: begin explain
weft explain "$task"
# docs: end explain

# docs: begin clear
weft cache list
weft cache clear raster.tile
weft cache clear --all
# docs: end clear
