weft workflows push tile_raster.yaml
weft workflows branch tile_raster/stable tile_raster
weft workflows patch tile_raster --set nodes.tiles.max_parallel=4 -m "narrower"
weft workflows patch tile_raster --set nodes.END.output.count='{{ nodes.collect.output.results.count }}' -m "faster"
weft workflows patch tile_raster --set nodes.tiles.max_parallel=16 -m "wider"

# docs: begin bisect
weft bisect tile_raster --good tile_raster/stable --app rasters -i blob=scans/alps.tif
# docs: end bisect
