"""Stand-ins for the handlers of raster.yaml: they say what the real ones would do."""

import weft

SIZES = {"alps.tif": 12, "andes.tif": 2048}


@weft.task(name="raster_validate", queue="functionapp-tasks")
async def validate(container_name: str, blob_name: str) -> dict[str, object]:
    if not blob_name.endswith(".tif"):
        raise weft.NonRetryable(f"{blob_name} is no GeoTIFF")
    return {"blob_url": f"https://{container_name}.example.com/{blob_name}", "file_size_mb": SIZES.get(blob_name, 1)}


@weft.task(name="raster_cog", queue="functionapp-tasks")
async def cog(source_url: str, target_crs: str) -> str:
    return f"{source_url} as {target_crs}, at once"


@weft.task(name="raster_cog_docker", queue="container-tasks")
def cog_docker(source_url: str, target_crs: str) -> str:
    return f"{source_url} as {target_crs}, in a container"
