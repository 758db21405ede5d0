"""Stand-ins for the handlers of tile_raster.yaml."""

import weft


@weft.task(name="raster.generate_tiling_scheme", queue="rasters")
async def generate_tiling_scheme(blob: str, size: int) -> dict[str, list[int]]:
    print("looking at", blob)
    return {"tiles": list(range(10))}


@weft.task(name="raster.process_tile_batch", queue="rasters")
async def process_tile_batch(tile: int, name: str) -> str:
    return f"{name}: done"
