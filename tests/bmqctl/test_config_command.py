"""`bmqctl config`: faults and settings of configurations of both systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bmqctl.app import app
from tests.integration.config_files import PORT, spoil, write_config


def run(*words: object) -> Result:
    result = CliRunner().invoke(app, ["config", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def findings(path: Path, code: int) -> list[dict[str, Any]]:
    result = run("validate", path, "--output", "json")
    assert result.exit_code == code
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_config(tmp_path / "etc")


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


def test_a_configuration_of_blazingmq_is_valid_with_a_note(folder: Path) -> None:
    result = run("validate", folder)
    assert result.exit_code == 0
    note, valid = result.stdout.splitlines()
    assert note.startswith(f"note: {folder}/bmqbrkrcfg.json: $.appConfig.networkInterfaces.tcpInterface.someOption")
    assert valid.startswith(f"{folder}: valid: BlazingMQ, node of cluster ")
    assert run("validate", folder, "--strict").exit_code == 1


def test_misspelt_members_are_found_at_any_depth(folder: Path) -> None:
    spoil(folder, "clusters.json", "myClusters", 0, "nodes", 0, "tags", value=["x"])
    spoil(folder, "clusters.json", "myclusters", value=[{"deep": {}}])
    places = [each["place"] for each in findings(folder, 0) if each["file"].endswith("clusters.json")]
    assert sorted(places) == ["$.myClusters[0].nodes[0].tags", "$.myclusters"]


def test_the_faults_of_all_domains_are_told(folder: Path) -> None:
    first, second = sorted((folder / "domains").glob("*.json"))[:2]
    first.write_text("{")
    second.write_text("{}")
    (folder / "domains" / "sent.on.json").write_text('{"redirect": "nowhere"}')
    found = [each for each in findings(folder, 1) if each["kind"] == "fault"]
    assert [each["file"] for each in found] == [str(first), str(second)]
    assert found[0]["place"] == "line 1, column 2"


def test_what_else_a_broker_would_end_with_is_told(folder: Path) -> None:
    config = "bmqbrkrcfg.json"
    tls = {"certificateAuthority": "/nowhere.pem", "certificate": "/nowhere.pem", "key": "/nowhere.key"}
    listener = {"name": "secure", "address": "127.0.0.1", "port": PORT, "tls": True}
    authentication = {"authenticators": [{"name": "NoSuchAuthenticator"}]}
    spoil(folder, config, "appConfig", "tlsConfig", value={**tls, "versions": "TLSv1.3"})
    spoil(folder, config, "appConfig", "authentication", value=authentication)
    # Nobody looks at the certificates of no listener and no node.
    assert [each["place"] for each in findings(folder, 1) if each["kind"] == "fault"] == [
        "$.appConfig.authentication.authenticators[0].name"
    ]
    spoil(folder, config, "appConfig", "networkInterfaces", "tcpInterface", "listeners", value=[listener])
    _, found = (each for each in findings(folder, 1) if each["kind"] == "fault")
    assert (found["place"], found["problem"]) == (
        "$.appConfig.tlsConfig.certificateAuthority",
        "/nowhere.pem: no such file or directory",
    )


def test_all_faults_of_one_file_are_told(folder: Path) -> None:
    config = json.loads((folder / "bmqbrkrcfg.json").read_bytes())
    config["taskConfig"] = {"allocatorType": "FAST"}
    del config["appConfig"]["networkInterfaces"]["tcpInterface"]["port"]
    (folder / "bmqbrkrcfg.json").write_text(json.dumps(config))
    assert [each["place"] for each in findings(folder, 1)] == [
        "$.taskConfig.allocatorType",
        "$.appConfig.networkInterfaces.tcpInterface.port",
    ]


def test_a_fault_of_the_broker_s_own_files_is_told_alone(folder: Path) -> None:
    (folder / "clusters.json").unlink()
    result = run("validate", folder)
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    assert result.stdout.startswith(f"fault: {folder}/clusters.json: does not exist; ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"listenPort=x\n", "listenPort: 'x' is not a number between 1 and 65535"),
        (b"brokerRole=SLAVE\n", "a slave needs an id"),
        (b"bindAddress=0.0.0.0\n", "clients cannot connect to 0.0.0.0"),
        (b"\xff", "is not UTF-8 (byte 0)"),
        (b"tlsCertPath=/nowhere.pem\n", "TLS needs both a certificate and its key: tlsCertPath and tlsKeyPath"),
        (b"tlsCertPath=/nowhere.pem\ntlsKeyPath=/nowhere.key\n", "/nowhere.pem or /nowhere.key: No such file"),
        (b"namesrvAddr=ns1\n", "'ns1' is no nameserver (namesrvAddr)"),
        (b"brokerRole=SLAVE\nbrokerId=1\n", "a slave finds its master through a nameserver"),
        (b"enableControllerMode=true\ncontrollerAddr=c1\n", "'c1' is no address of a controller (controllerAddr)"),
        (b"enableControllerInNamesrv=true\n", "a controller needs controllerDLegerPeers"),
        (b"authenticationEnabled=true\n", "authentication is enabled, but there is no user"),
        (b"aclEnable=true\n", "plain_acl.yml: No such file or directory"),
        (b"listenPort=9876\n", "nameserverPort and listenPort are both 9876"),
        (
            b"brokerRole=SYNC_MASTER\nhaListenPort=10909\n",
            "haListenPort and listenPort less 2 are both 10909",
        ),
        (b"grpcServerPort=10911\n", "listenPort and grpcServerPort are both 10911"),
        (b"metricsExporterType=PROM\nmetricsPromExporterPort=9876\n", "nameserverPort and metricsPromExporterPort"),
    ],
)
def test_faults_of_rocketmq_s_properties(properties: Path, text: bytes, problem: str) -> None:
    properties.write_bytes(text)
    (found,) = findings(properties, 1)
    assert (found["kind"], found["file"]) == ("fault", str(properties))
    assert problem in found["problem"]
    # A fault of one value, or of the role; only a start would find the others.
    is_unreadable = any(word in problem for word in ("not a number", "needs an id", "UTF-8"))
    assert run("show", properties).exit_code == (2 if is_unreadable else 0)


def test_all_faults_of_rocketmq_s_properties_are_told(properties: Path) -> None:
    properties.write_text("listenPort=x\nflushDiskType=LATER; or now\nauthenticationEnabled=maybe\naclEnable=perhaps\n")
    assert [(each["problem"], each["remedy"]) for each in findings(properties, 1)] == [
        ("listenPort: 'x' is not a number between 1 and 65535", "correct it"),
        ("flushDiskType: 'LATER; or now' is neither ASYNC_FLUSH nor SYNC_FLUSH", "correct it"),
        ("authenticationEnabled: its value is neither true nor false", "correct it"),
        ("aclEnable: its value is neither true nor false", "correct it"),
    ]
    result = run("show", properties)
    assert (result.exit_code, "(3 more after this)" in result.stderr) == (2, True)
    properties.write_text("bindAddress=0.0.0.0\nnamesrvAddr=ns1\n")
    assert [each["remedy"] for each in findings(properties, 1)] == [
        "set the address of this host for them: --address, or brokerIP1 in the configuration",
        "write HOST:PORT",
    ]


def test_users_of_the_store_are_found_and_nothing_is_made(properties: Path, tmp_path: Path) -> None:
    store = tmp_path / "rocketmq"
    user = '{"username":"ops","password":"hush"}'
    properties.write_text(f"storePathRootDir={store}\nauthenticationEnabled=true\ninitAuthenticationUser={user}\n")
    assert findings(properties, 0) == []
    assert not store.exists()
    (store / "config").mkdir(parents=True)
    (store / "config" / "users.json").write_text("{")
    (found,) = findings(properties, 1)
    assert f"{store}/config/users.json or {store}/config/acls.json: " in found["problem"]
    assert found["remedy"].startswith("repair it, or restore the file")
    assert [path.name for path in store.rglob("*.json")] == ["users.json"]


def test_a_property_without_effect_is_a_note(properties: Path) -> None:
    properties.write_text("brokerName=orders\nflushDiskTyp=SYNC_FLUSH\n")
    result = run("validate", properties)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"note: {properties}: flushDiskTyp: has no effect here; correct its name, or leave it for Apache's broker",
        f"{properties}: valid: RocketMQ, broker orders of cluster DefaultCluster",
    ]


def shown(path: Path, *words: str) -> dict[str, tuple[Any, str]]:
    result = run("show", path, *words, "--output", "json")
    assert result.exit_code == 0
    return {each["name"]: (each["value"], each["source"]) for each in json.loads(result.stdout)}


def test_settings_say_where_they_are_from(folder: Path, properties: Path) -> None:
    found = shown(folder)
    assert found["$.appConfig.hostName"] == ("localhost", "file")
    assert "default" in {source for _, source in found.values()}
    assert {source for _, source in shown(folder, "--changed").values()} == {"file"}
    properties.write_text("brokerName=orders\n")
    assert shown(properties)["brokerName"] == ("orders", "file")
    assert shown(properties)["flushDiskType"] == ("ASYNC_FLUSH", "default")


def test_secrets_are_not_shown(folder: Path, properties: Path) -> None:
    setting = {"key": "ops", "value": {"stringVal": "hush"}}
    authentication = {"authenticators": [{"name": "BasicAuthenticator", "settings": [setting]}]}
    spoil(folder, "bmqbrkrcfg.json", "appConfig", "authentication", value=authentication)
    properties.write_text('initAuthenticationUser={"username":"ops","password":"hush"}\n')
    for path in (folder, properties):
        for command in ("show", "validate"):
            result = run(command, path)
            assert result.exit_code == 0
            assert "hush" not in result.output


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    for command in ("show", "validate"):
        result = run(command, tmp_path / "none")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"bmqctl config {command}: {tmp_path}/none: no such file or folder\n"
