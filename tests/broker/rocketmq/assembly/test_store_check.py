"""The look at a store before a start: what a node heeds, and what it refuses before it writes anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.rocketmq.assembly.store_check import check_store, root_of_store
from broker.rocketmq.config.node import PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import StoreFileDamaged
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from broker.shell.files.store_lock import FolderLock, StoreInUse
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import GOLDEN
from tests.golden.rocketmq.stores import STORES, unpack

SIZES = StoreOptions(commit_log_file_bytes=4096, consume_queue_file_bytes=200, index_slots=11, index_entries=60)
PROPERTIES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
# The sizes in the configurations of Apache's brokers that were replicated.
REPLICATED = StoreOptions(4 << 20, 6_000_000, 500, 2_000)
HOST = Host("127.0.0.1", 1).pack()
FILE = "0" * 16
MESSAGES = 40


def fill(root: FileFolder | MemoryFolder, options: StoreOptions = SIZES) -> MessageStore:
    """Write messages over several files, each with a key, and flush them."""
    store = open_store(root, options, lambda ms: f"{ms:017d}")
    properties = encode_properties({"KEYS": "k", "UNIQ_KEY": "u"})
    for number in range(MESSAGES):
        Writer(store).put(Message("t", 0, 0, 0, number, HOST, HOST, 0, 0, b"." * 200, properties), number + 1)
    store.flush()
    return store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that was stopped as it should."""
    fill(FileFolder(tmp_path / "store")).close()
    return tmp_path / "store"


@pytest.fixture
def apache(store: Path) -> Path:
    """A store without the files that only this broker writes."""
    (store / "bmqctl.flushed").unlink()
    return store


def config_of(store: Path, text: str = "", options: StoreOptions = SIZES) -> RocketConfig:
    file = store.parent / "broker.conf"
    sizes = "".join(f"{name}={value}\n" for name, value in zip(PROPERTIES, options, strict=False))
    file.write_text(sizes + text, encoding="latin-1")
    return load_rocketmq_config(file).changed(store=store)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def number_of_messages(config: RocketConfig) -> int:
    checked, _ = check_store(config)
    opened = open_store(root_of_store(checked), checked.store_options, lambda ms: f"{ms:017d}")
    begin, _ = opened.span("t", 0)
    found = [opened.log.read(entry.physical_offset).record.stored_ms for entry in opened.get("t", 0, begin, 99)]
    assert len(opened.index.find("t", "k", 0, 1 << 60, 64)) == MESSAGES
    opened.close()
    return len(found)


# -- places


def test_log_in_another_folder_is_heeded(store: Path, tmp_path: Path) -> None:
    (store / "commitlog").rename(tmp_path / "elsewhere")
    config = config_of(store, f"storePathCommitLog = {tmp_path}/elsewhere \n")
    assert number_of_messages(config) == MESSAGES
    assert not (store / "commitlog").exists()
    assert config.properties["storePathCommitLog"] == f"{tmp_path}/elsewhere"


def test_log_in_several_folders_goes_on_where_the_original_would(store: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "cab"]
    for path in paths:
        path.mkdir()
    files = sorted((store / "commitlog").iterdir())
    for number, path in enumerate(files):
        shutil.move(path, paths[number % 3] / path.name)
    all_paths = ",".join(map(str, paths))
    config = config_of(store, f"storePathCommitLog={all_paths},\nreadOnlyCommitLogStorePaths={paths[0]}\n")
    assert number_of_messages(config) == MESSAGES
    opened = open_store(root_of_store(config), SIZES, lambda ms: f"{ms:017d}")
    begun = opened.log.files.end
    while opened.log.files.end == begun:
        Writer(opened).put(Message("t", 0, 0, 0, 0, HOST, HOST, 0, 0, b"." * 200, b""), 99)
    # Sorted, without the one that is only read; in turn by the number of the file.
    assert (tmp_path / "ab"[begun // 4096 % 2] / f"{begun:020d}").exists()
    first = paths[0] / f"{FILE}0000"
    assert first.exists()
    opened.expire(4096)
    opened.close()
    assert not first.exists()
    assert number_of_messages(config) >= MESSAGES - 13


def test_file_that_two_folders_have_is_told(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "commitlog", tmp_path / "b")
    config = config_of(store, f"storePathCommitLog={store}/commitlog,{tmp_path}/b\n")
    with pytest.raises(StoreFileDamaged, match="another folder of storePathCommitLog has this file, too"):
        check_store(config)


@pytest.mark.parametrize("value", ["", " ", ",x", "a, b", "a,,b", "a,a"])
def test_paths_that_cannot_be_meant_are_refused(store: Path, value: str) -> None:
    with pytest.raises(PropertyError, match=r"broker\.conf: storePathCommitLog: "):
        config_of(store, f"storePathCommitLog={value}\n")


@pytest.mark.parametrize("name", ["storePathRootDir", "storePathCommitLog", "storePathEpochFile", "tlsCertPath"])
@pytest.mark.parametrize("value", ["", "a\\u0000b"])
def test_text_that_is_no_path_is_refused(store: Path, name: str, value: str) -> None:
    with pytest.raises(PropertyError, match=rf"broker\.conf: {name}: "):
        config_of(store, f"{name}={value}\n")


def test_folder_of_a_log_belongs_to_one_node(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(StoreInUse):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_log_of_the_store_in_the_file_is_not_that_of_another_store(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "copy")
    text = f"storePathRootDir={store}\nstorePathCommitLog={store}/commitlog\nstorePathIndex={store}/index\n"
    assert number_of_messages(config_of(store, text)) == MESSAGES
    with pytest.raises(PropertyError, match="leave out --store"):
        check_store(config_of(store, text).changed(store=tmp_path / "copy"))


@pytest.mark.parametrize("name", ["storePathConsumeQueue", "storePathIndex", "storeCheckpoint", "abortFile"])
def test_place_that_the_original_does_not_heed_is_refused(store: Path, tmp_path: Path, name: str) -> None:
    before = contents(tmp_path)
    with pytest.raises(PropertyError, match=f"{name}=.*has no effect"):
        check_store(config_of(store, f"{name}={tmp_path}/elsewhere\n"))
    assert {**before, "broker.conf": b""} == {**contents(tmp_path), "broker.conf": b""}


def test_small_files_elsewhere_are_heeded(store: Path, tmp_path: Path) -> None:
    from broker.rocketmq.assembly.identity import APPLICANT, EPOCHS, IDENTITY, small_file

    config = config_of(store, f"storePathEpochFile={tmp_path}/e\nstorePathBrokerIdentity={tmp_path}/i\n")
    assert [small_file(config, name) for name in (EPOCHS, IDENTITY, APPLICANT, "other")] == [
        tmp_path / "e",
        tmp_path / "i",
        tmp_path / "i-temp",
        store / "other",
    ]


def test_path_in_utf_8_is_refused_and_in_escapes_heeded(store: Path, tmp_path: Path) -> None:
    text = f"storePathCommitLog={tmp_path}/größe\n"
    with pytest.raises(PropertyError, match="characters in UTF-8"):
        config_of(store, text.encode().decode("latin-1"))
    for found in (text, text.replace("ö", "\\u00f6").replace("ß", "\\u00DF")):
        assert config_of(store, found).places.log == (tmp_path / "größe",)


# -- kinds


@pytest.mark.parametrize(
    "line",
    [
        "enableDLegerCommitLog=true",
        "storeType=defaultRocksDB",
        "storeType=default;defaultRocksDB",
        "rocksdbCQDoubleWriteEnable=true",
        "configManagerVersion=v2",
        "popConsumerKVServiceInit=true",
        "popConsumerKVServiceEnable=TRUE",
        "timerRocksDBEnable=true",
        "transRocksDBEnable=true",
        "indexRocksDBEnable=true",
        "messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore",
        "enableConsumeQueueExt=true",
        "enabledAppendPropCRC=true",
        "forceVerifyPropCRC=true",
    ],
)
def test_store_of_another_kind_is_refused(store: Path, line: str) -> None:
    with pytest.raises(PropertyError, match=line.replace(".", r"\.")) as refused:
        config_of(store, f"{line}\n")
    assert refused.value.remedy
    harmless = (
        line.partition("=")[0]
        + "="
        + {"storeType": "default", "configManagerVersion": "v1"}.get(
            line.partition("=")[0], "" if "PlugIn" in line else "false"
        )
    )
    assert config_of(store, f"{harmless}\n").unused == ()


def test_a_type_of_store_that_the_original_does_not_know_is_that_of_files(store: Path) -> None:
    assert config_of(store, "storeType=foo\n").unused == ()


def plant(*names: str) -> Callable[[Path], None]:
    def plant_files(store: Path) -> None:
        for name in names:
            path = store / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")

    return plant_files


@pytest.mark.parametrize(
    "traces",
    [
        plant(f"dledger-n0/data/{FILE}0000"),
        plant("consumequeue/CURRENT", "consumequeue/MANIFEST-000004", "consumequeue/000009.sst"),
        plant(
            "config/consumerOffsets/CURRENT",
            "config/consumerOffsets/MANIFEST-000004",
            "config/consumerOffsets/000009.sst",
        ),
        plant("config/rdb/CURRENT", "config/rdb/MANIFEST-000001", "config/rdb/000009.sst"),
        plant("kvStore/CURRENT", "kvStore/MANIFEST-000001", "kvStore/000009.sst"),
        plant("rocksdbstore/CURRENT", "rocksdbstore/MANIFEST-000001", "rocksdbstore/000009.sst"),
        plant("consumequeue_ext/t/0/00000000000000000000"),
        plant("batchconsumequeue/t/0/00000000000000000000"),
        plant("compaction/compactionCq/t/0/00000000000000000000"),
        plant("config/tieredStoreMetadata.json"),
    ],
)
def test_traces_of_another_kind_of_store_are_refused(store: Path, traces: Callable[[Path], None]) -> None:
    traces(store)
    before = contents(store)
    with pytest.raises(PropertyError, match="which is not read here; start Apache's broker"):
        check_store(config_of(store))
    assert contents(store) == before


# -- sizes


def test_sizes_of_the_files_are_heeded(store: Path) -> None:
    config = config_of(store, options=StoreOptions(1 << 20, 2_000, 500, 400))
    checked, notes = check_store(config)
    assert checked.store_options == SIZES
    assert tuple(note.partition("=")[0] for note in notes) == PROPERTIES
    assert number_of_messages(config) == MESSAGES


@pytest.mark.parametrize("name", STORES)
def test_stores_of_the_original_are_as_they_should_be(tmp_path: Path, name: str) -> None:
    """Find their sizes, and no damage in what the original leaves after a change of the master."""
    for broker in unpack(name, tmp_path):
        before = contents(broker)
        checked, notes = check_store(RocketConfig(store=broker))
        assert checked.store_options == (GOLDEN if name == "store" else REPLICATED)
        assert len(notes) == (4 if name == "store" else 3)
        assert contents(broker) == before


def test_sizes_of_a_store_without_files_are_those_of_the_configuration(tmp_path: Path) -> None:
    config = config_of(tmp_path / "none")
    assert check_store(config) == (config, [])
    assert not (tmp_path / "none").exists()


def test_index_that_does_not_show_its_layout_is_refused(store: Path) -> None:
    for file in (store / "index").iterdir():
        file.write_bytes(bytes(file.stat().st_size + 24))
    with pytest.raises(PropertyError, match="set both to what the store was written with"):
        check_store(config_of(store))


# -- what is missing


def remove_all(log: Path) -> None:
    shutil.rmtree(log)


def empty(log: Path) -> None:
    for path in log.iterdir():
        path.unlink()


def remove_middle(log: Path) -> None:
    sorted(log.iterdir())[1].unlink()


def remove_last(log: Path) -> None:
    max(log.iterdir()).unlink()


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("is_apache", [False, True])
@pytest.mark.parametrize("remove", [remove_all, empty, remove_middle, remove_last])
def test_missing_files_of_the_log_are_damage_and_nothing_is_changed(
    store: Path, remove: Callable[[Path], None], is_apache: bool, crashed: bool
) -> None:
    if is_apache:
        (store / "bmqctl.flushed").unlink()
    if crashed:
        (store / "abort").write_bytes(b"")
    remove(store / "commitlog")
    before = contents(store)
    with pytest.raises(StoreFileDamaged, match="replica or a backup") as told:
        check_store(config_of(store))
    assert str(store / "commitlog") in str(told.value)
    assert contents(store) == before
    # A node that opens the store without that check loses nothing, either.
    with pytest.raises(StoreFileDamaged, match="replica or a backup"):
        open_store(FileFolder(store), SIZES, lambda ms: f"{ms:017d}")
    assert {**before, "checkpoint": b""} == {**contents(store), "checkpoint": b""}


def test_missing_file_of_a_queue_is_damage(store: Path) -> None:
    files = sorted((store / "consumequeue" / "t" / "0").iterdir())
    files[1].unlink()
    with pytest.raises(StoreFileDamaged, match="does not follow the file before it"):
        check_store(config_of(store))


def test_log_that_is_gone_with_the_queues_is_told_by_the_checkpoint(apache: Path) -> None:
    shutil.rmtree(apache / "commitlog")
    shutil.rmtree(apache / "consumequeue")
    with pytest.raises(StoreFileDamaged, match="by the checkpoint"):
        check_store(config_of(apache))


def test_loss_of_power_before_the_first_flush_is_no_damage() -> None:
    """The disk has the queue's file, and not the log's: nothing was said to be there."""
    root = MemoryFolder(chunk=64)
    store = open_store(root, SIZES, lambda ms: f"{ms:017d}")
    Writer(store).put(Message("t", 0, 0, 0, 1, HOST, HOST, 0, 0, b"x", b""), 1)
    left = root.after_crash()
    del left.inside["commitlog"].files[FILE + "0000"]
    assert open_store(left, SIZES, lambda ms: f"{ms:017d}").queue_table.last_end == (0, "queue 0 of topic t")


def test_cut_to_nothing_is_no_damage() -> None:
    root = MemoryFolder(chunk=64)
    store = fill(root)
    store.truncate(0)
    store.close()
    assert open_store(root.after_crash(), SIZES, lambda ms: f"{ms:017d}").log.end == 0


@pytest.mark.parametrize(
    "text",
    [
        "mappedFileSizeConsumeQueue=2147483647",
        "transactionCheckMax=2147483648",
        "maxIndexNum=107374182",
        "maxHashSlotNum=536870912",
        "messageDelayLevel=",
        "traceTopicEnable=yes",
        "traceTopicEnable=true\nmsgTraceTopicName=",
    ],
)
def test_value_beyond_what_the_original_counts_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(text)
    name = text.splitlines()[-1].partition("=")[0]
    with pytest.raises(PropertyError, match=rf"broker\.conf: .*{name}"):
        load_rocketmq_config(file)
