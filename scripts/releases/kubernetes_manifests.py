"""The manifests in packaging/kubernetes, built from their kustomizations.

`kubectl kustomize` is the judge where it is installed; this needs only PyYAML and refuses a kustomization with unknown
features.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

__all__ = ["FOLDER", "KUSTOMIZATIONS", "Pod", "build", "pods", "write_files"]

Manifest = dict[str, Any]

FOLDER: Final = Path(__file__).resolve().parents[2] / "packaging" / "kubernetes"
KUSTOMIZATIONS: Final = ("blazingmq/base", "blazingmq/cluster", "rocketmq/base", "rocketmq/cluster")

_KNOWN: Final = {"apiVersion", "kind", "resources", "labels", "replicas", "configMapGenerator"}


class Pod(NamedTuple):
    """A pod of a StatefulSet: its name, its host name, its arguments, and its files by path."""

    name: str
    host: str
    arguments: tuple[str, ...]
    files: dict[str, str]


def build(folder: Path) -> list[Manifest]:
    """Build a kustomization. ConfigMaps keep their names, without a suffixed digest."""
    wanted = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := wanted.keys() - _KNOWN:
        raise ValueError(f"{folder}: {', '.join(sorted(unknown))} is not known here")
    found: list[Manifest] = []
    for name in wanted.get("resources", ()):
        place = folder / name
        if place.is_dir():
            found += build(place)
        else:
            found += [each for each in yaml.safe_load_all(place.read_text()) if each is not None]
    for generator in wanted.get("configMapGenerator", ()):
        _generate(folder, generator, found)
    for replicas in wanted.get("replicas", ()):
        (target,) = (each for each in found if each["kind"] == "StatefulSet" and _name(each) == replicas["name"])
        target["spec"]["replicas"] = replicas["count"]
    for labels in wanted.get("labels", ()):
        for each in found:
            each["metadata"].setdefault("labels", {}).update(labels["pairs"])
            if labels.get("includeTemplates") and "template" in each.get("spec", {}):
                each["spec"]["template"]["metadata"].setdefault("labels", {}).update(labels["pairs"])
                for claim in each["spec"].get("volumeClaimTemplates", ()):
                    claim["metadata"].setdefault("labels", {}).update(labels["pairs"])
    return found


def _generate(folder: Path, generator: dict[str, Any], found: list[Manifest]) -> None:
    data = {(folder / name).name: (folder / name).read_text() for name in generator["files"]}
    there = [each for each in found if each["kind"] == "ConfigMap" and _name(each) == generator["name"]]
    if generator.get("behavior", "create") == "merge":
        (target,) = there
        target["data"].update(data)
        return
    assert not there
    metadata = {"name": generator["name"]}
    found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def _name(manifest: Manifest) -> str:
    name: str = manifest["metadata"]["name"]
    return name


def pods(manifests: list[Manifest], addresses: list[str]) -> list[Pod]:
    """Return the pods of the StatefulSet among `manifests`; each has the next one of `addresses`."""
    (stateful,) = (each for each in manifests if each["kind"] == "StatefulSet")
    spec = stateful["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    found = []
    for number, address in zip(range(spec["replicas"]), addresses, strict=True):
        name = f"{_name(stateful)}-{number}"
        of_fields = {"metadata.name": name, "status.podIP": address}
        environment = {each["name"]: of_fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in container["env"]}
        arguments = []
        for argument in container["args"]:
            for variable, value in environment.items():
                argument = argument.replace(f"$({variable})", value)
            assert "$(" not in argument
            arguments.append(argument)
        files = {}
        volumes = {each["name"]: each for each in spec["template"]["spec"]["volumes"]}
        for mount in container["volumeMounts"]:
            if mount["name"] in volumes:
                for path, text in _volume(volumes[mount["name"]], manifests).items():
                    files[f"{mount['mountPath']}/{path}"] = text
        found.append(Pod(name, f"{name}.{spec['serviceName']}", tuple(arguments), files))
    return found


def _volume(volume: dict[str, Any], manifests: list[Manifest]) -> dict[str, str]:
    """Return the files of a volume of ConfigMaps by their paths in it."""
    data = {_name(each): each["data"] for each in manifests if each["kind"] == "ConfigMap"}
    if "configMap" in volume:
        return dict(data[volume["configMap"]["name"]])
    found = {}
    for source in volume["projected"]["sources"]:
        config = source["configMap"]
        keys = data[config["name"]]
        for item in config.get("items", [{"key": key, "path": key} for key in keys]):
            found[item["path"]] = keys[item["key"]]
    return found


def write_files(pod: Pod, root: Path) -> Pod:
    """Write a pod's files below `root`; return it with arguments that name these."""
    for path, text in pod.files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    arguments = tuple(f"{root}{each}" if each.startswith(("/etc/", "/var/")) else each for each in pod.arguments)
    return pod._replace(arguments=arguments)
