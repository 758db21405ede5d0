# docs: begin validate
weft validate tile_raster.yaml
# docs: end validate

# docs: begin graph
weft graph tile_raster.yaml
weft graph tile_raster.yaml --svg > tile_raster.svg
weft graph tile_raster.yaml --mermaid > tile_raster.mmd
# docs: end graph

# docs: begin diff
sed 's/max_parallel: 8/max_parallel: 16/' tile_raster.yaml > wider.yaml
weft diff tile_raster.yaml wider.yaml || echo "they differ"
weft diff --patch tile_raster.yaml wider.yaml || true
# docs: end diff

# docs: begin schema
weft schema > weft.schema.json
# docs: end schema
