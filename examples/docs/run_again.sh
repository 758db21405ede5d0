weft workflows push tile_raster.yaml
weft run tile_raster --app rasters -i blob=scans/alps.tif --json > job.json
job=$(python3 -c 'import json; print(json.load(open("job.json"))["id"])')

# docs: begin plan
weft jobs rerun "$job" --from collect --plan
# docs: end plan

# docs: begin rerun
weft jobs rerun "$job" --failed --app rasters
weft jobs rerun "$job" --set size=512 --app rasters
# docs: end rerun

# docs: begin on
weft workflows patch tile_raster --set nodes.tiles.task.params.name='{{ index }} of {{ inputs.blob }}' -m "shorter"
weft jobs rerun "$job" --on tile_raster --app rasters
# docs: end on

# docs: begin many
weft jobs rerun --where state=failed --workflow tile_raster --since 1d --failed
weft jobs rerun --where state=failed --where label.team=maps --failed --yes
# docs: end many
