# docs: begin run
weft run tile_raster.yaml --app rasters -i blob=scans/alps.tif
# docs: end run

# docs: begin tag
weft workflows push tile_raster.yaml
weft run tile_raster --app rasters -i blob=scans/alps.tif -i size=512
weft jobs list
weft jobs list --state failed --since 2h --oldest
# docs: end tag

# docs: begin detach
job=$(weft run tile_raster --detach -i blob=scans/andes.tif)
weft jobs pause "$job"
weft jobs resume "$job"
weft jobs show "$job"
weft jobs cancel "$job"
# docs: end detach

# docs: begin events
weft jobs approvals
weft events send file.arrived --payload '{"path": "scans/urals.tif"}'
# docs: end events
