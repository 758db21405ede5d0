"""What operators fetch comes from servers that may say anything: they are not believed, and nothing breaks by them."""

from __future__ import annotations

import gzip
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from engine_scene import MakeClient

import weft
from liars import Liar, answer
from live_scene import until
from operator_scene import OperatorScene
from weft.worker.operators.fetching import LARGEST, guarded_client
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def fetched(
    client: weft.Client, conn: Conn, registry: Registry, liar: Liar, **config: Any
) -> tuple[OperatorScene, int]:
    """Fetch once from a liar with an event; the only attempt says what is wrong."""
    scene = OperatorScene(client, conn, registry)
    source = {"kind": "event", "event": "look"}
    said = {"url": f"{liar.url}/rows", **config}
    job = await scene.job("fetched", "http_fetch", said, output="fetched", source=source, max_attempts=1)
    await client.jobs.send_event("look", {})
    return scene, job


@pytest.fixture
async def near(make_client: MakeClient) -> weft.Client:
    return await make_client(fetch_allowed="127.0.0.1", dag_secrets="SITE_TOKEN")


_ROWS = b'[{"n": 1}]'


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (answer(gzip.compress(gzip.compress(_ROWS)), "content-encoding: gzip, gzip"), "in the encoding 'gzip, gzip'"),
        (answer(_ROWS, "content-encoding: deflate"), "in the encoding 'deflate'"),
        (answer(gzip.compress(b"\0" * (LARGEST + 2)), "content-encoding: gzip"), f"more than {LARGEST:,} bytes"),
        (answer(gzip.compress(_ROWS)[:-12], "content-encoding: gzip"), "ended amid what it packed"),
        (answer(_ROWS, "content-encoding: gzip"), "not packed as it says"),
        (answer(_ROWS, "retry-after: \u00b2", status=503), "answered 503"),
        (answer(_ROWS, "retry-after: Mon, 01 Jan 99999 00:00:00 GMT", status=503), "answered 503"),
        (answer(_ROWS, "content-encoding: deflate", status=503), "answered 503"),
    ],
    ids=["packed twice", "another way", "bomb", "cut off", "not packed", "odd rest", "late rest", "refused"],
)
async def test_an_answer_that_is_not_what_it_says_is_refused_in_words(
    near: weft.Client, conn: Conn, registry: Registry, said: bytes, problem: str
) -> None:
    async with Liar(said).serve() as liar:
        scene, job = await fetched(near, conn, registry, liar)
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            assert problem in await scene.error(job)


async def test_what_is_packed_in_parts_is_unpacked_whole(near: weft.Client, conn: Conn, registry: Registry) -> None:
    packed = gzip.compress(b"n\n1\n") + gzip.compress(b"2\n")
    async with Liar(answer(packed, "content-encoding: gzip")).serve() as liar:
        scene, _ = await fetched(near, conn, registry, liar, format="csv")
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            await scene.settled()
            assert await scene.rows("fetched") == [{"n": 1}, {"n": 2}]


async def test_a_secret_that_no_header_can_have_is_not_repeated(
    near: weft.Client, conn: Conn, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "canary-4711\n")
    async with Liar(answer(_ROWS)).serve() as liar:
        headers = {"Authorization": {"env": "SITE_TOKEN", "prefix": "Bearer "}}
        scene, job = await fetched(near, conn, registry, liar, headers=headers)
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            problem = await scene.error(job)
        assert "config.headers.Authorization: the value of SITE_TOKEN has a sign that no header may have" in problem
        assert "canary" not in problem
        assert not liar.asked


async def test_a_connection_is_of_the_host_whose_certificate_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", _certificate(tmp_path, "localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem")
    async with Liar(answer(_ROWS)).serve(context) as liar, guarded_client(["127.0.0.1", "localhost"]) as http:
        for _ in range(2):
            assert (await http.get(f"https://localhost:{liar.port}/own")).status_code == 200
        # At the same address, and none of the names that the certificate has.
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await http.get(f"https://127.0.0.1:{liar.port}/other")
    assert [target for target, _ in liar.asked] == ["/own", "/own"]


def _certificate(folder: Path, name: str) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    named, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(named).issuer_name(named).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    form = serialization.Encoding.PEM
    secret = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "certificate.pem"
    file.write_bytes(made.public_bytes(form) + secret)
    return str(file)


async def test_a_source_that_fetches_looks_as_often_as_it_is_told_by_now(
    near: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(near, conn, registry)
    async with Liar(answer(_ROWS)).serve() as liar:
        # Deployed with a rest of hours, by now one of moments.
        await scene.job(
            "fetched", "http_fetch", {"url": f"{liar.url}/rows"}, output="fetched",
            source={"kind": "continuous", "manner": '{"kind": "continuous", "poll": 0.01}'},
            document={"source": {"kind": "continuous", "poll": 3600}},
        )  # fmt: skip
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            await until(lambda: len(liar.asked) > 3)
