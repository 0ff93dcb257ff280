from __future__ import annotations

import pytest

from bmqctl.pipeline.source.options import BadOption, FileSets, Mode, ReadOptions, Table
from bmqctl.pipeline.source.tables import schema_of


def test_options_have_no_case() -> None:
    read = ReadOptions.parse(
        {
            "PATHS": '["a", "b"]',
            "Table": "MESSAGES",
            "mode": "FailFast",
            "filesets": "all",
            "columns": "guid, outcome",
            "recordsPerPartition": "7",
            "after": "0:1-2, 3:4-5",
            "until": "0:9-9",
        }
    )
    assert read.paths == ("a", "b")
    assert (read.table, read.mode, read.file_sets) == (Table.MESSAGES, Mode.FAILFAST, FileSets.ALL)
    assert (read.records_per_partition, read.tasks) == (7, 0)
    assert (read.after, read.until) == ({0: (1, 2), 3: (4, 5)}, {0: (9, 9)})
    assert schema_of(read).names == ["guid", "outcome"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "path: name a directory"),
        ({"path": "a", "tabel": "records"}, "tabel: unknown option"),
        ({"path": "a", "table": "people"}, "table: 'people' is none of records, messages"),
        ({"path": "a", "mode": "lax"}, "mode: 'lax' is none of permissive, failfast"),
        ({"path": "a", "recordsPerPartition": "0"}, "recordsPerPartition: 0 is not a number of at least 1"),
        ({"path": "a", "tasks": "-1"}, "tasks: -1 is not a number of at least 0"),
        ({"path": "a", "after": "0:1"}, "after: '0:1' is not <partition>"),
        ({"path": "a", "columns": "guid,colour"}, "columns: records has no colour: it has partition_id"),
        ({"paths": "[1]"}, "paths: not a JSON list"),
        ({"paths": "x"}, "paths: not a JSON list"),
        ({"path": "a", "payloadFormat": "xml", "payloadSchema": "x"}, "'xml' is none of json, avro, protobuf"),
        ({"path": "a", "payloadFormat": "json"}, "payloadFormat and payloadSchema must be given together"),
        ({"path": "a", "payloadFormat": "protobuf", "payloadSchema": "x"}, "payloadMessage names"),
    ],
)
def test_invalid_option_is_refused_in_a_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said) as raised:
        schema_of(ReadOptions.parse(options))
    assert "\n" not in str(raised.value)
