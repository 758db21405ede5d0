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

# docs: begin release
weft workflows tag tile_raster/prod tile_raster -m "release"
weft workflows protect tile_raster/prod
weft diff tile_raster/prod tile_raster
weft workflows show tile_raster/prod --materialize
# docs: end release
