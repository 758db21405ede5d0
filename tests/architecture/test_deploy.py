"""The files to deploy by: units, a compose file and manifests whose commands are those that there are."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from docs.pages.cli import commands, parameters

from weft.core.settings import ENVIRONMENT_ONLY, Settings
from weft.server.credentials import ANONYMOUS

HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
GRACE = Settings().worker_shutdown_grace.total_seconds()
_KINDS = {
    "ConfigMap": "core.v1", "Service": "core.v1", "Deployment": "apps.v1", "Job": "batch.v1",
    "PodDisruptionBudget": "policy.v1",
}  # fmt: skip


def _check_command(words: list[str]) -> None:
    """Check that a command line is one that `weft` takes."""
    known = dict(commands())
    path = next(name for name in (f"weft {words[0]}", f"weft {' '.join(words[:2])}") if name in known)
    options = {option for each in parameters(known[path]) for option in re.findall(r"--[\w-]+", each.shown)}
    assert {word for word in words if word.startswith("--")} <= options, words


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield path.name, document


def _check_settings(names: set[str]) -> None:
    settings = {f"WEFT_{name.upper()}" for name in Settings.__dataclass_fields__} | set(ENVIRONMENT_ONLY)
    assert {name for name in names if name.startswith("WEFT_")} <= settings


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_and_leaves_tasks_time_to_end(path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(path, encoding="utf-8")
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    service = unit["Service"]
    _check_command(service["ExecStart"].split()[1:])
    # A database that comes later than the machine, or a migration that is run again, must end nothing for good.
    assert "Requires" not in unit["Unit"]
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["Restart"] == ("on-failure" if service["Type"] == "oneshot" else "always")
    if service["Type"] != "oneshot":
        assert service["KillMode"] == "mixed"
        assert float(service["TimeoutStopSec"]) >= (GRACE if "worker" in path.name else 20)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        # The programs are not installed here, and whether they are is asked too.
        text = re.sub(r"/srv/app/\S+/weft", "/bin/true", path.read_text(encoding="utf-8"))
        (tmp_path / path.name.replace("@", "@shop")).write_text(text.replace("%i", "8400"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "weft-" in line] == []


def test_the_settings_that_units_are_told_are_settings() -> None:
    for name in ("weft.env.example", "server.env.example"):
        lines = (DEPLOY / "systemd" / name).read_text(encoding="utf-8").splitlines()
        _check_settings({line.partition("=")[0] for line in lines if not line.startswith("#")})


def test_no_server_is_told_the_address_of_the_owner_and_each_migration_admits_its_role() -> None:
    """PostgreSQL is no wall between orgs for a role that owns the tables."""
    unit = (DEPLOY / "systemd" / "weft-server@.service").read_text(encoding="utf-8")
    assert re.findall(r"EnvironmentFile=(\S+)", unit) == ["/etc/weft/weft.env", "/etc/weft/server.env"]
    roles = {
        name: re.findall(r"^WEFT_DATABASE_URL=postgresql://(\w+):", text, re.MULTILINE)
        for name in ("weft", "server")
        if (text := (DEPLOY / "systemd" / f"{name}.env.example").read_text(encoding="utf-8"))
    }
    assert roles == {"weft": ["weft"], "server": ["weft_server"]}
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for name in ("migrate", "server", "orchestrator", "worker"):
        role = "weft_server" if name == "server" else "weft"
        assert services[name]["environment"]["WEFT_DATABASE_URL"].startswith(f"postgresql://{role}:${{"), name
    made = (DEPLOY / "compose" / "roles.sql").read_text(encoding="utf-8")
    assert re.findall(r"create role (\w+) login password", made) == ["weft", "weft_server"]
    for name, document in _documents():
        if (pod := _pod(document)) is not None:
            sources = pod["containers"][0]["envFrom"]
            secrets = [source["secretRef"]["name"] for source in sources if "secretRef" in source]
            assert secrets == ["weft-bucket", "weft-server" if name == "server.yaml" else "weft-owner"], name
    args = next(_pod(document) for name, document in _documents() if name == "migrate.yaml")["containers"][0]["args"]  # type: ignore[index]
    for words in (args, services["migrate"]["command"], _unit_words("weft-migrate.service")):
        assert words == ["migrate", "upgrade", "--server-role", "weft_server"]


def _unit_words(name: str) -> list[str]:
    text = (DEPLOY / "systemd" / name).read_text(encoding="utf-8")
    [line] = re.findall(r"ExecStart=(.+)", text)
    return line.split()[1:]  # type: ignore[no-any-return]


def test_the_compose_file_runs_commands_after_the_migration_and_opens_this_machine_only() -> None:
    found = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    services = found["services"]
    assert set(services) == {"db", "migrate", "server", "orchestrator", "worker"}
    for name in ("migrate", "server", "orchestrator", "worker"):
        _check_command(services[name]["command"])
        _check_settings(set(services[name]["environment"]))
    for name in ("server", "orchestrator", "worker"):
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert {name for service in services.values() for name in _volumes(service)} == {*found["volumes"], "./roles.sql"}
    assert [port for service in services.values() for port in service.get("ports", ())] == ["127.0.0.1:8400:8400"]
    assert services["worker"]["stop_grace_period"] == "1m"
    assert GRACE < 60
    assert any(path in services["server"]["healthcheck"]["test"][-1] for path in ANONYMOUS)
    assert "PASSWORD:?" in found["services"]["db"]["environment"]["POSTGRES_PASSWORD"]  # there is no default


def _volumes(service: dict[str, Any]) -> list[str]:
    return [volume.partition(":")[0] for volume in service.get("volumes", ())]


def _problems(schema: dict[str, Any], document: object) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in found]


def _kubernetes(document: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that Kubernetes has for a document; it knows no field that is not in it."""
    whole: dict[str, Any] = json.loads((HERE / "kubernetes.schema.json").read_text(encoding="utf-8"))
    return whole | {"$ref": f"#/$defs/io.k8s.api.{_KINDS[document['kind']]}.{document['kind']}"}


def test_kubernetes_takes_each_field_of_the_manifests_and_no_other() -> None:
    for name, document in _documents():
        assert _problems(_kubernetes(document), document) == [], name
        document["spec" if "spec" in document else "metadata"]["replica"] = 2
        assert any("'replica' was unexpected" in problem for problem in _problems(_kubernetes(document), document))


def test_compose_takes_each_field_of_its_file_and_no_other() -> None:
    schema = json.loads((HERE / "compose.schema.json").read_text(encoding="utf-8"))
    found = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    assert _problems(schema, found) == []
    found["services"]["server"]["port"] = found["services"]["server"].pop("ports")
    assert any("'port' was unexpected" in problem for problem in _problems(schema, found))


def test_manifests_are_whole_and_fit_each_other() -> None:
    kept = {document["metadata"]["name"] for _, document in _documents() if document["kind"] == "ConfigMap"}
    labels = [
        document["spec"]["template"]["metadata"]["labels"] for _, document in _documents() if _pod(document) is not None
    ]
    assert labels
    for name, document in _documents():
        assert re.fullmatch(r"[a-z][a-z0-9-]*", document["metadata"]["name"])
        if document["kind"] == "ConfigMap":
            _check_settings(set(document["data"]))
            assert all(isinstance(value, str) for value in document["data"].values())
        selector = document.get("spec", {}).get("selector")
        if selector is not None:
            assert selector.get("matchLabels", selector) in labels, name
        if (pod := _pod(document)) is not None:
            _check_pod(pod, kept)


def _pod(document: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = document.get("spec", {}).get("template", {}).get("spec")
    return found


def _check_pod(pod: dict[str, Any], kept: set[str]) -> None:
    [container] = pod["containers"]
    _check_command(container["args"])
    assert {source["configMapRef"]["name"] for source in container["envFrom"] if "configMapRef" in source} <= kept
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {"requests", "limits"} == set(container["resources"])
    if container["name"] == "worker":
        assert pod["terminationGracePeriodSeconds"] > GRACE
    for probe in ("readinessProbe", "livenessProbe"):
        if probe in container:
            assert container[probe]["httpGet"]["path"] in ANONYMOUS
            assert container[probe]["httpGet"]["port"] in {port["name"] for port in container["ports"]}
