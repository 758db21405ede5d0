# docs: begin run
weft run tile_raster.yaml --app rasters -i blob=scans/alps.tif --no-cache
# docs: end run

# docs: begin clear
weft cache list
weft cache clear raster.tile
weft cache clear --all
# docs: end clear
