# docs: begin push
weft workflows push tile_raster.yaml -m "first"
weft workflows list
# docs: end push

# docs: begin patch
weft workflows patch tile_raster --set nodes.tiles.max_parallel=16 -m "wider"
weft workflows undo tile_raster
weft workflows redo tile_raster
weft workflows moves tile_raster
# docs: end patch

# docs: begin branch
weft workflows branch tile_raster/faster tile_raster
weft workflows patch tile_raster/faster --set nodes.scheme.queue=fast -m "its own queue"
weft workflows merge tile_raster/faster --into tile_raster
weft workflows log tile_raster --graph
weft workflows blame tile_raster
# docs: end branch

# docs: begin conflict
weft workflows patch tile_raster/faster --set nodes.tiles.max_parallel=32 -m "much wider"
weft workflows patch tile_raster --set nodes.tiles.max_parallel=4 -m "narrower"
weft workflows merge tile_raster/faster --into tile_raster || echo "ended with exit code $?"
weft workflows merge tile_raster/faster --into tile_raster --prefer theirs
# docs: end conflict

# docs: begin revert
weft workflows revert tile_raster tile_raster/faster~1 --dry-run
weft workflows revert tile_raster tile_raster/faster~1 -m "the common queue after all"
# docs: end revert
