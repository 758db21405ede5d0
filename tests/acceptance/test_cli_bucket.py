"""Large values in a bucket of S3, through real processes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest
import yaml
from apps.cli_scene import Cli

from buckets import SECRET, S3Bucket
from history_laws import make_older

# Above the inline limit of 256 KiB.
TEXT = "x" * 300_000


@pytest.fixture
def cli(url: str, home: Path, s3_bucket: S3Bucket) -> Cli:
    return Cli(url, home, WEFT_BLOB_URL=s3_bucket.url)


@pytest.fixture
def large(tmp_path: Path) -> str:
    path = tmp_path / "large.json"
    path.write_text(json.dumps({"text": TEXT}))
    return f"@{path}"


def test_a_worker_takes_large_params_from_the_bucket_and_leaves_its_output_there(
    cli: Cli, s3_bucket: S3Bucket, home: Path, large: str
) -> None:
    with cli.start("worker", "--app", "cli_large", "--fast") as worker:
        worker.line("ready")
        done = cli.json("tasks", "enqueue", "cli:double", "--params", large, "--wait")
    assert (done["state"], done["output"]) == ("completed", TEXT + TEXT)
    assert cli.json("tasks", "show", done["id"])["params"] == {"text": TEXT}
    assert sorted(len(data) for data in s3_bucket.objects().values()) == [300_011, 600_002]
    assert [name for name in s3_bucket.names() if name.startswith("used-by/")]
    assert not (home / "blobs").exists()


def test_a_large_definition_is_kept_in_the_bucket_and_what_is_damaged_there_is_named_and_never_shown(
    cli: Cli, s3_bucket: S3Bucket, home: Path, tmp_path: Path
) -> None:
    fetch = {"handler": "fetch", "params": {"size": 1, "text": TEXT}, "next": "END"}
    flow = {"workflow_id": "etl", "nodes": {"START": {"type": "start", "next": "fetch"}, "fetch": fetch,
                                            "END": {"type": "end"}}}  # fmt: skip
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    cli("workflows", "push", str(tmp_path / "flow.json"))
    ((name, stored),) = s3_bucket.objects().items()
    assert yaml.safe_load(cli("workflows", "show", "etl", "--materialize")) == json.loads(stored) == flow
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2")
    fetch["params"] = {"size": 2, "text": TEXT}
    assert yaml.safe_load(cli("workflows", "show", "etl", "--materialize")) == flow
    assert list(s3_bucket.objects()) == [name], "the patch is small"
    s3_bucket.write(name, stored.replace(b'"size":1', b'"size":3'))
    digest = name.split("/")[1]
    for command in (
        ("show", "etl", "--materialize"), ("show", "etl"), ("patch", "etl", "--set", "nodes.fetch.params.size=4"),
        ("snapshot", "etl"), ("compact", "etl"), ("blame", "etl"),
    ):  # fmt: skip
        complaint = cli("workflows", *command, code=3)
        assert complaint.startswith(f"weft: blob {digest} is damaged, its bytes have another hash"), command
    found = cli.json("workflows", "fsck", code=1)["findings"]
    assert [(each["code"], digest in each["problem"]) for each in found] == [
        ("lost_blob", True),
        ("no_document", False),
    ]
    s3_bucket.delete(name)
    assert f"weft: blob {digest} is missing in the blob storage" in cli("workflows", "show", "etl", code=3)
    s3_bucket.write(name, stored)
    assert cli("workflows", "fsck") == "the history is whole\n"
    assert not (home / "blobs").exists()


def test_a_large_snapshot_is_removed_from_the_bucket_after_the_grace_and_the_version_stays(
    cli: Cli, s3_bucket: S3Bucket, url: str, tmp_path: Path
) -> None:
    flow = {"workflow_id": "etl", "nodes": {"START": {"type": "start", "next": "END"},
                                            "END": {"type": "end", "output": {"text": TEXT}}}}  # fmt: skip
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    cli("workflows", "push", str(tmp_path / "flow.json"))
    (name,) = s3_bucket.objects()
    cli("workflows", "snapshot", "etl", "--set", "nodes.END.output.size=2")
    assert len(s3_bucket.objects()) == 2
    assert cli.json("workflows", "gc")["blobs"] == 0

    async def wait() -> None:
        conn = await asyncpg.connect(url)
        await make_older(conn)
        await conn.close()

    asyncio.run(wait())
    s3_bucket.age(2)
    removed = cli.json("workflows", "gc")
    assert (removed["snapshots"], removed["patches"], removed["blobs"]) == (1, 1, 2)
    assert [left.split("/")[1] for left in s3_bucket.objects()] == [name.split("/")[1]]
    assert cli.json("workflows", "show", "etl")["data"] == flow


def test_what_is_wrong_with_the_bucket_is_told_in_one_line_without_secrets(
    cli: Cli, s3_bucket: S3Bucket, large: str
) -> None:
    with s3_bucket.server.answering("403 Forbidden", "AccessDenied"):
        complaint = cli("tasks", "enqueue", "h", "--params", large, code=3)
    assert complaint.startswith("weft: blob ")
    assert ": access is denied: allow s3:GetObject" in complaint
    assert "\n" not in complaint
    assert SECRET not in complaint
    cli.environment["WEFT_BLOB_URL"] = "s3://"
    complaint = cli("worker", "--app", "cli_large", code=3)
    assert "WEFT_BLOB_URL: has no bucket: write it like s3://bucket/prefix" in complaint


def test_the_address_is_shown_and_a_secret_in_it_is_not(cli: Cli, s3_bucket: S3Bucket) -> None:
    assert cli.json("config")["blob_url"] == s3_bucket.url
    cli.environment["WEFT_BLOB_URL"] = f"s3://key:{SECRET}@bucket/x"
    assert cli.json("config")["blob_url"] == "***"
    cli.environment["WEFT_BLOB_URL"] = "file:///srv/with%20blank"
    assert cli.json("config")["blob_url"] == "/srv/with blank"


def test_a_folder_that_cannot_be_used_is_told_with_its_setting_also_beside_a_bucket(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    complaint = Cli(None, tmp_path / "file" / "home", WEFT_BLOB_URL="s3://bucket/prefix")("db", "start", code=3)
    assert complaint.endswith("or set WEFT_HOME to another folder")
