weft workflows push tile_raster.yaml -m "first"

# docs: begin release
weft workflows tag tile_raster/prod tile_raster -m "release"
weft workflows protect tile_raster/prod
weft workflows undo tile_raster/prod || echo "ended with exit code $?"
# docs: end release

# docs: begin back
moment=$(weft workflows moves tile_raster --json |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["moves"][0]["moved_at"])')
weft workflows patch tile_raster --set nodes.tiles.max_parallel=64
weft workflows show tile_raster --at "$moment" --materialize
weft workflows show tile_raster@1
weft diff tile_raster~1 tile_raster || echo "ended with exit code $?"
# docs: end back

# docs: begin delete
weft workflows delete tile_raster/prod --force
weft workflows undelete tile_raster/prod
# docs: end delete

# docs: begin snapshot
weft workflows snapshot tile_raster --set nodes.tiles.max_parallel=2
# docs: end snapshot

# docs: begin upkeep
weft workflows fsck
weft workflows gc --dry-run
# docs: end upkeep
