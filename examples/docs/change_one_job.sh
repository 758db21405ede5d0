weft workflows push tile_raster.yaml

# docs: begin patch
weft run tile_raster --app rasters -i blob=scans/alps.tif --set nodes.tiles.max_parallel=2 --label team=maps
weft jobs list --label team=maps
# docs: end patch
