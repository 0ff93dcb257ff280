"""`bmqctl config`: faults and settings of configurations of both systems."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bmqctl.app import app
from broker.bmq.config.local_cluster import write_local_cluster
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, ConsumeQueueEntry
from tests.rigs.config_files import PORT, spoil, write_config

ENTRY = CONSUME_QUEUE_ENTRY.words.pack(*ConsumeQueueEntry(0, 9, 0))


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


def test_validation_reports_other_faults_that_would_end_a_broker(folder: Path) -> None:
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
        (b"listenPort=\\u00\n", "is not like"),
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
    is_unreadable = any(word in problem for word in ("not a number", "needs an id", "not like"))
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


def test_validation_reports_a_store_that_the_node_would_refuse(properties: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "consumequeue" / "t" / "0").mkdir(parents=True)
    (store / "consumequeue" / "t" / "0" / ("0" * 20)).write_bytes(ENTRY)
    text = f"storePathRootDir={store}\n".encode()
    for more, problem in (
        (b"", f"{store}/commitlog at offset 0: there is no commit log, but queue 0 of topic t has a message that ends"),
        (b"enableDLegerCommitLog=true\n", "enableDLegerCommitLog=true asks for a commit log that brokers replicate"),
    ):
        properties.write_bytes(text + more)
        (found,) = findings(properties, 1)
        assert found["kind"] == "fault"
        assert found["problem"].startswith(problem)
    assert [*store.iterdir()] == [store / "consumequeue"]


def test_a_value_that_is_not_what_it_seems_is_a_note(properties: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / ("0" * 20)).write_bytes(bytes(8192))
    properties.write_text(f"storePathRootDir={store}\nbrokerName=Zürich\n# größer\n")
    assert [(each["kind"], each["place"], each["problem"]) for each in findings(properties, 0)] == [
        ("note", "", "mappedFileSizeCommitLog=1073741824 differs from the files of the store; 8192 is used"),
        ("note", "brokerName", "its value has characters in UTF-8, and Java's properties are in ISO-8859-1"),
    ]


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


def test_missing_configuration_is_refused(tmp_path: Path) -> None:
    for command in ("show", "validate"):
        result = run(command, tmp_path / "none")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"bmqctl config {command}: {tmp_path}/none: no such file or folder\n"


def shared_by_nodes(folder: Path, hosts: list[str], port: int = PORT) -> Path:
    """Write one configuration for all nodes of a cluster, each on a host that has no address here."""
    write_config(folder)
    spoil(folder, "bmqbrkrcfg.json", "appConfig", "hostName", value="OVERRIDE")
    nodes = [
        {"id": number, "name": host, "dataCenter": "x", "transport": {"tcp": {"endpoint": f"tcp://{host}:{port}"}}}
        for number, host in enumerate(hosts, 1)
    ]
    spoil(folder, "clusters.json", "myClusters", 0, "nodes", value=nodes)
    # A cluster of several cannot have these.
    (folder / "domains" / "bmq.test.mem.priority.json").unlink()
    return folder


HOSTS = ["gallifrey.invalid", "skaro.invalid"]


def test_a_configuration_for_another_host_is_checked_as_its_start_would_be(tmp_path: Path) -> None:
    folder = shared_by_nodes(tmp_path / "etc", HOSTS)
    (fault,) = [each for each in findings(folder, 1) if each["kind"] == "fault"]
    assert (fault["place"], "--host-name" in fault["remedy"]) == ("$.myClusters[0].nodes", True)
    options = ("-h", HOSTS[1], "-d", "WHO", "-i", "default", "-t", "tag", "-p", PORT)
    result = run("validate", folder, *options)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        f"{folder}: valid: BlazingMQ, node of cluster mine with 2 nodes, 4 domains",
    )
    assert run("validate", folder, "-h", HOSTS[1], "-p", PORT + 1).exit_code == 1
    assert run("validate", folder, "-h", "pacem.invalid").exit_code == 1


def test_the_files_of_all_nodes_are_checked_in_one_call(tmp_path: Path) -> None:
    folder = shared_by_nodes(tmp_path / "etc", HOSTS)
    result = run("validate", "--all-nodes", folder)
    assert result.exit_code == 0
    valid = [line for line in result.stdout.splitlines() if ": valid: " in line]
    assert [line.partition(": valid")[0] for line in valid] == [f"{folder} at {host}:{PORT}" for host in HOSTS]
    spoil(folder, "clusters.json", "myClusters", 0, "nodes", 1, "transport", "tcp", "tls", value=True)
    found = [each for each in findings_of("--all-nodes", folder, code=1) if each["kind"] == "fault"]
    assert {each["place"] for each in found} == {"$.myClusters[0].nodes[1].transport.tcp.tls"}


def findings_of(*words: object, code: int) -> list[dict[str, Any]]:
    result = run("validate", *words, "--output", "json")
    assert result.exit_code == code, result.stdout
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_a_folder_of_nodes_is_checked_node_by_node_and_they_must_agree(tmp_path: Path) -> None:
    nodes = write_local_cluster(tmp_path / "cluster", 3, "127.0.0.1", PORT)
    result = run("validate", tmp_path / "cluster")
    valid = [line.partition(": valid: ")[0] for line in result.stdout.splitlines() if ": valid: " in line]
    assert (result.exit_code, valid) == (0, [str(node) for node in nodes])
    spoil(nodes[1], "clusters.json", "myClusters", 0, "partitionConfig", "numPartitions", value=2)
    (found,) = [each for each in findings_of(tmp_path / "cluster", code=1) if each["kind"] == "fault"]
    assert found["file"] == str(nodes[1] / "clusters.json")
    assert found["problem"] == f"differs from {nodes[0]}: partitionConfig.numPartitions is 4 there and 2 here"
    spoil(nodes[2], "bmqbrkrcfg.json", "appConfig", "hostName", value=7)
    assert len([each for each in findings_of(*nodes, code=1) if each["kind"] == "fault"]) == 2


def test_a_new_cluster_has_no_domain_that_it_cannot_use(tmp_path: Path) -> None:
    nodes = write_local_cluster(tmp_path / "cluster", 3, "127.0.0.1", PORT)
    found = findings_of(*nodes, code=0)
    assert not [each for each in found if "no queue can be opened" in each["problem"]], found
    assert (nodes[0] / "domains/bmq.test.mem.broadcast.json").exists()
    (single,) = write_local_cluster(tmp_path / "single", 1, "127.0.0.1", PORT)
    assert (single / "domains/bmq.test.mem.priority.json").exists()


def test_only_the_owner_reads_the_secrets_of_a_new_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    assert run("init", folder, "--nodes", 2, "--tls", "--user", "ada", "--host", "::1").exit_code == 0
    assert not [each for each in findings_of(folder, code=0) if each["kind"] == "fault"]
    texts = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    secrets = [folder / "ca.key", folder / "ada.credentials", folder / "node1/node.key", folder / "node2/node.key"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in secrets] == [0o600] * 4
    password = texts[folder / "ada.credentials"].removeprefix(b"ada:").strip()
    assert len(password) == 32
    readable = [
        file for file, text in texts.items() if file not in secrets and (b"PRIVATE" in text or password in text)
    ]
    assert sorted(readable) == [folder / "node1/bmqbrkrcfg.json", folder / "node2/bmqbrkrcfg.json"]
    assert [stat.S_IMODE(file.parent.stat().st_mode) for file in readable] == [0o700] * 2


@pytest.mark.parametrize("words", [("--tls",), ("--user", "ada")])
def test_the_security_of_a_cluster_that_is_there_stays_as_it_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = tmp_path / "cluster"
    assert run("init", folder).exit_code == 0
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert run("init", folder, *words).exit_code == 2
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["node1", "", "a b", "../a", "a:b", "x" * 65])
def test_names_that_no_user_of_a_new_cluster_can_have(tmp_path: Path, name: str) -> None:
    assert run("init", tmp_path / "cluster", "--user", name).exit_code == 2
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--all-nodes", "-h", "gallifrey", "FOLDER"),
        ("-h", "gallifrey", "FILE"),
        ("--all-nodes", "FILE"),
        ("FOLDER", "/nowhere"),
    ],
)
def test_impossible_questions_about_a_configuration(
    folder: Path, properties: Path, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    properties.touch()
    places = {"FOLDER": folder, "FILE": properties}
    result = run("validate", *(places.get(word, word) for word in words))
    assert (result.exit_code, result.stdout) == (2, "")


def test_domains_that_are_eventual_by_default_have_a_note_in_a_cluster(tmp_path: Path, folder: Path) -> None:
    shared = shared_by_nodes(tmp_path / "shared", HOSTS)
    for each in (folder, shared):
        file = each / "domains" / "shop.orders.json"
        domain = json.loads(file.read_bytes())
        del domain["definition"]["parameters"]["consistency"]
        file.write_text(json.dumps(domain))
    place = "$.definition.parameters.consistency"
    notes = [each for each in findings_of("-h", HOSTS[0], shared, code=0) if each["place"] == place]
    assert [(each["kind"], each["file"]) for each in notes] == [("note", str(shared / "domains" / "shop.orders.json"))]
    # A cluster of one has no second copy to wait for.
    assert [each for each in findings(folder, 0) if each["place"] == place] == []


def test_domains_that_no_queue_can_be_opened_in_are_told(folder: Path) -> None:
    spoil(folder, "domains/shop.orders.json", "definition", "parameters", "mode", value={"broadcast": {}})
    subscription = {"appId": "left", "expression": {"version": "E_VERSION_1", "text": "a =="}}
    spoil(folder, "domains/shop.prices.json", "definition", "parameters", "subscriptions", value=[subscription])
    found = {(each["kind"], each["file"], each["place"]) for each in findings(folder, 1)}
    domains = folder / "domains"
    assert ("note", str(domains / "shop.orders.json"), "$.definition.parameters.storage.config") in found
    assert ("fault", str(domains / "shop.prices.json"), "$.definition.parameters.subscriptions") in found


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("maxDataFileSize", 40, 34359738360),
        ("maxJournalFileSize", 44, 17179869180),
        ("maxQlistFileSize", 36, 17179869180),
        ("maxCSLFileSize", 0, 17592186040320),
        ("numPartitions", 1, 1 << 16),
    ],
)
def test_a_number_that_the_files_cannot_hold_is_a_fault(folder: Path, name: str, least: int, most: int) -> None:
    spoil(folder, "clusters.json", "myClusters", 0, "partitionConfig", name, value=most)
    findings(folder, 0)
    spoil(folder, "clusters.json", "myClusters", 0, "partitionConfig", name, value=most + 1)
    (found,) = findings(folder, 1)
    assert found["place"] == f"$.myClusters[0].partitionConfig.{name}"
    assert (found["problem"], found["remedy"]) == (f"is {most + 1}", f"use {least} to {most}")
    refused = CliRunner().invoke(app, ["start", "node", str(folder)])
    assert (refused.exit_code, f"use {least} to {most}" in refused.output) == (2, True)


def test_init_writes_what_validate_accepts(tmp_path: Path) -> None:
    folder = tmp_path / "a cluster"
    words = ["config", "init", str(folder), "--nodes", "3", "--port", "31000"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert f"bmqctl start node '{folder}/node3'" in result.output
    checked = CliRunner().invoke(app, ["config", "validate", str(folder)])
    assert checked.exit_code == 0, checked.output
    # Files that exist stay, and another cluster is not mixed with it.
    assert CliRunner().invoke(app, words).exit_code == 0
    other = CliRunner().invoke(app, ["config", "init", str(folder), "--nodes", "5", "--port", "31000"])
    assert (other.exit_code, "names 127.0.0.1:31000" in other.output) == (2, True), other.output
