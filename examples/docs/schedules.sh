# docs: begin kept
weft workflows push tile_raster.yaml
weft queues create rasters
# docs: end kept

# docs: begin dry
weft schedules add tile_raster --cron "30 2 * * *" --timezone Europe/Berlin --dry-run
# docs: end dry

# docs: begin add
weft schedules add tile_raster --cron "30 2 * * *" --timezone Europe/Berlin -i 'blob=scans/{{ tick.date }}.tif'
weft schedules add tile_raster --name often --every 15m --overlap skip -i blob=scans/latest.tif
# docs: end add

# docs: begin replace
weft schedules add tile_raster --name often --every 15m --overlap skip -i blob=scans/newest.tif --replace
# docs: end replace

# docs: begin look
weft schedules list
weft schedules show tile_raster
weft schedules ticks tile_raster -n 3
weft jobs list --label schedule=tile_raster
# docs: end look

# docs: begin pause
weft schedules pause often --reason "the disk is full"
weft schedules resume often
weft schedules change tile_raster --cron "0 4 * * *" --catch-up all
weft schedules trigger tile_raster
# docs: end pause

# docs: begin backfill
weft schedules backfill tile_raster --since 30d --at-once 4 --dry-run
weft schedules backfill tile_raster --since 30d --at-once 4
weft schedules backfills tile_raster
# docs: end backfill

# docs: begin delete
weft schedules delete often --yes
# docs: end delete
