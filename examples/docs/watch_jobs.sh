weft queues create rasters
job=$(weft run tile_raster.yaml --detach -i blob=scans/alps.tif)

# docs: begin why
weft jobs why "$job"
weft jobs why "$job" END
# docs: end why

weft worker --app rasters --queues rasters,default >/dev/null 2>&1 &
worker=$!
weft orchestrator >/dev/null 2>&1 &
orchestrator=$!

# docs: begin watch
weft jobs watch "$job"
# docs: end watch

kill $worker $orchestrator
wait

# docs: begin events
weft jobs events "$job"
weft jobs events "$job" --follow --json
# docs: end events

# docs: begin logs
weft jobs logs "$job"
weft jobs logs "$job" scheme
# docs: end logs
