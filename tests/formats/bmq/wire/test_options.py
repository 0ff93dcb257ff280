from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import OptionType
from formats.bmq.wire.options import (
    OPTION_HEADER,
    Option,
    OptionHeader,
    SubQueueInfo,
    iter_options,
    message_group_id,
    pack_message_group_id,
    pack_option,
    pack_sub_queue_ids,
    pack_sub_queue_infos,
    sub_queue_infos,
)
from formats.bmq.wire.rda import RDA_INFO, UNLIMITED, RdaInfo, limited
from formats.errors import FormatError

ids = st.integers(0, (1 << 32) - 1)
infos = st.tuples(ids, st.integers(0, 255)).map(lambda pair: SubQueueInfo(*pair))


def area(*options: bytes) -> memoryview:
    return memoryview(b"".join(options))


@given(st.lists(infos, min_size=1, max_size=20))
def test_infos_come_back(wanted: list[SubQueueInfo]) -> None:
    assert sub_queue_infos(area(pack_message_group_id(b"g"), pack_sub_queue_infos(wanted))) == wanted


@given(st.lists(ids, min_size=1, max_size=20))
def test_ids_come_back_unlimited(wanted: list[int]) -> None:
    assert sub_queue_infos(area(pack_sub_queue_ids(wanted))) == [SubQueueInfo(each, UNLIMITED) for each in wanted]


def test_the_newer_option_wins_wherever_it_stands() -> None:
    older, newer = pack_sub_queue_ids([1]), pack_sub_queue_infos([SubQueueInfo(2, 3)])
    assert sub_queue_infos(area(older, newer)) == sub_queue_infos(area(newer, older)) == [SubQueueInfo(2, 3)]


def test_no_option_names_no_subscription() -> None:
    assert sub_queue_infos(area()) == []
    assert pack_sub_queue_ids([]) == pack_sub_queue_infos([]) == b""


def test_the_default_subscription_alone_is_packed() -> None:
    assert pack_sub_queue_infos([SubQueueInfo(0, limited(5))]) == bytes.fromhex("0e000005")
    assert pack_sub_queue_infos([SubQueueInfo(0, UNLIMITED)]) == bytes.fromhex("0e000080")
    assert pack_sub_queue_infos([SubQueueInfo(1, UNLIMITED)]) == bytes.fromhex("0c400003 00000001 80000000")


def test_longer_items_of_a_newer_sender_are_cut() -> None:
    content = bytes.fromhex("00000001 80000000 aaaaaaaa 00000002 05000000 bbbbbbbb")
    option = pack_option(OptionType.SUB_QUEUE_INFOS, content, type_specific=3)
    assert sub_queue_infos(area(option)) == [SubQueueInfo(1, UNLIMITED), SubQueueInfo(2, 5)]


@given(st.binary(min_size=1, max_size=31))
def test_groups_come_back(group: bytes) -> None:
    assert message_group_id(area(pack_sub_queue_ids([1]), pack_message_group_id(group))) == group


def test_no_group() -> None:
    assert message_group_id(area(pack_sub_queue_ids([1]))) is None


def test_unknown_types_are_passed_on_even_twice() -> None:
    unknown = pack_option(40, b"content!", type_specific=9)
    packed = OPTION_HEADER.pack(OptionHeader(63, 1, 2, 77))
    assert list(iter_options(area(unknown, packed, unknown))) == [
        Option(40, False, 9, 3, memoryview(b"content!")),
        Option(63, True, 2, 77, memoryview(b"")),
        Option(40, False, 9, 3, memoryview(b"content!")),
    ]


@pytest.mark.parametrize(
    "options",
    [
        b"\4\0\0",
        OPTION_HEADER.pack(OptionHeader(1, 0, 0, 0)),
        OPTION_HEADER.pack(OptionHeader(1, 0, 0, 1)),
        OPTION_HEADER.pack(OptionHeader(1, 0, 0, 3)) + bytes(4),
        OPTION_HEADER.pack(OptionHeader(0, 0, 0, 2)) + bytes(4),
        pack_sub_queue_ids([1]) * 2,
    ],
)
def test_malformed_areas_are_refused(options: bytes) -> None:
    with pytest.raises(FormatError, match="OptionHeader"):
        list(iter_options(memoryview(options)))


@pytest.mark.parametrize(
    "option",
    [
        OPTION_HEADER.pack(OptionHeader(OptionType.SUB_QUEUE_INFOS, 1, 0, 256)),
        pack_option(OptionType.SUB_QUEUE_INFOS, bytes(8), type_specific=0),
        pack_option(OptionType.SUB_QUEUE_INFOS, bytes(8), type_specific=1),
        pack_option(OptionType.SUB_QUEUE_INFOS, bytes(12), type_specific=2),
    ],
)
def test_malformed_infos_are_refused_where_they_are(option: bytes) -> None:
    for before in (b"", pack_option(40, b"content!"), OPTION_HEADER.pack(OptionHeader(41, 1, 0, 7))):
        with pytest.raises(FormatError) as caught:
            sub_queue_infos(memoryview(before + option))
        assert caught.value.offset == len(before)


def test_a_group_without_padding_is_refused_where_its_count_is() -> None:
    area = pack_sub_queue_ids([1]) + pack_option(OptionType.MSG_GROUP_ID, b"group!!!")
    with pytest.raises(FormatError) as caught:
        message_group_id(memoryview(area))
    assert (caught.value.path, caught.value.offset) == ("MsgGroupId.padding", len(area) - 1)


def test_delivery_attempts_in_a_byte() -> None:
    assert UNLIMITED == 0x80
    assert RDA_INFO.unpack(bytes([limited(63, poisonous=True)])) == RdaInfo(0, 1, 63)
    assert limited(0) == 0
    for counter in (-1, 64):
        with pytest.raises(OverflowError):
            limited(counter)
