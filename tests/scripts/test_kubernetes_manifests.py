"""The manifests for Kubernetes: valid by its schemas, and one with another."""

from __future__ import annotations

import re
import shutil
import subprocess
from copy import deepcopy
from typing import Any

import kubernetes_validate
import pytest
import yaml

from scripts.releases.kubernetes_manifests import FOLDER, KUSTOMIZATIONS, build, pods

# The first that knows all that is used, or the oldest that the package has, and a new one.
VERSIONS = ("1.28", "1.36")


def validate(manifest: dict[str, Any]) -> None:
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.fixture(params=KUSTOMIZATIONS)
def manifests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return build(FOLDER / request.param)


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in manifests if each["kind"] == kind]


def test_schemas_accept_them(manifests: list[dict[str, Any]]) -> None:
    assert len(manifests) >= 5
    for manifest in manifests:
        validate(manifest)


def test_schemas_refuse_what_is_wrong() -> None:
    (good,) = of_kind(build(FOLDER / "blazingmq/base"), "StatefulSet")
    misspelt, mistyped = deepcopy(good), deepcopy(good)
    container = misspelt["spec"]["template"]["spec"]["containers"][0]
    container["livenessprobe"] = container.pop("livenessProbe")
    mistyped["spec"]["replicas"] = "three"
    for bad in (misspelt, mistyped):
        with pytest.raises(kubernetes_validate.ValidationError):
            validate(bad)


def test_one_names_what_the_other_has(manifests: list[dict[str, Any]]) -> None:
    (stateful,) = of_kind(manifests, "StatefulSet")
    spec, template = stateful["spec"], stateful["spec"]["template"]
    (container,) = template["spec"]["containers"]
    labels = template["metadata"]["labels"].items()
    ports = {port["name"] for port in container["ports"]}

    selectors = [spec["selector"]["matchLabels"]]
    selectors += [each["spec"]["selector"] for each in of_kind(manifests, "Service")]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in of_kind(manifests, "PodDisruptionBudget")]
    assert len(selectors) == 4
    assert all(selector.items() <= labels for selector in selectors)

    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "Service")}
    assert services[spec["serviceName"]]["clusterIP"] == "None"
    assert services[spec["serviceName"]]["publishNotReadyAddresses"]
    assert {port["targetPort"] for each in services.values() for port in each["ports"]} == ports
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert probes == {"/healthz", "/readyz"}
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} <= ports

    volumes = {each["name"] for each in (*template["spec"]["volumes"],)}
    claims = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes | claims
    assert re.search(rf"^USER {template['spec']['securityContext']['runAsUser']}$", containerfile(), re.MULTILINE)


def containerfile() -> str:
    return (FOLDER.parent / "Containerfile").read_text()


def test_every_file_of_a_configuration_is_mounted(manifests: list[dict[str, Any]]) -> None:
    (stateful,) = of_kind(manifests, "StatefulSet")
    (pod, *_) = pods(manifests, ["127.0.0.1"] * stateful["spec"]["replicas"])
    given = {key for each in of_kind(manifests, "ConfigMap") for key in each["data"]}
    assert {path.rpartition("/")[2] for path in pod.files} == given


@pytest.mark.process
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_kubectl_builds_the_same(name: str) -> None:
    command = ["kubectl", "kustomize", str(FOLDER / name)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    # It adds a digest of their content to the names of ConfigMaps.
    text = re.sub(r"(?m)(name: \S+-(?:config|domains))-[a-z0-9]{10}$", r"\1", run.stdout)

    def sorted_by_name(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(manifests, key=lambda each: (each["kind"], each["metadata"]["name"]))

    assert sorted_by_name(list(yaml.safe_load_all(text))) == sorted_by_name(build(FOLDER / name))
