"""The account of memory: who is closed when connections use too much, and who when there are too many."""

from __future__ import annotations

from broker.common.standing import Standing
from broker.shell.connections.accepted import CHOICE_MS, AcceptedConnections
from broker.shell.connections.account import FREE_BYTES, Account

MIB = 1 << 20


class Connection:
    """A connection, as the account and the table of accepted connections know it."""

    def __init__(self, standing: Standing = Standing.STRANGER, read_ms: int = 0, address: str = "a") -> None:
        self.standing = standing
        self.read_ms = read_ms
        self.address = address
        self.size = 0


def closed(account: Account) -> list[Connection]:
    """Close what the account chooses."""
    chosen: list[Connection] = []
    for debtor, reason in account.to_close():
        assert isinstance(debtor, Connection)
        assert str(debtor.size) in reason
        chosen.append(debtor)
    for each in chosen:
        account.set_size(each, 0)
    return chosen


def clients(account: Account, *sizes: int) -> list[Connection]:
    """Clients that use given numbers of bytes."""
    made = [Connection(Standing.CLIENT) for _ in sizes]
    for each, size in zip(made, sizes, strict=True):
        account.set_size(each, size)
    return made


def test_sizes_are_added_up_and_taken_back() -> None:
    account = Account(10 * MIB)
    one, other = clients(account, 3 * MIB, 4 * MIB)
    account.set_size(one, MIB)
    assert account.total == 5 * MIB
    assert account.to_close() == []
    account.set_size(other, 0)
    account.set_size(one, 0)
    assert account.total == 0


def test_the_greediest_clients_go_until_there_is_room() -> None:
    account = Account(16 * MIB)
    small, great, greater, other = clients(account, 2 * MIB, 5 * MIB, 7 * MIB, 3 * MIB)
    assert account.is_over
    assert closed(account) == [greater]
    assert account.total == small.size + great.size + other.size
    more = clients(account, 4 * MIB, 4 * MIB)
    # An eighth is made free: 14 MiB may stay of 18.
    assert closed(account) == [great]
    assert [each.size for each in more] == [4 * MIB] * 2


def test_strangers_have_a_quarter_and_the_silent_ones_go_first() -> None:
    account = Account(32 * MIB)
    (client,) = clients(account, 20 * MIB)
    strangers = [Connection(read_ms=ms) for ms in (30, 10, 20)]
    for each in strangers:
        account.set_size(each, 3 * MIB)
    assert account.is_over
    assert closed(account) == [strangers[1]]
    assert client.size
    assert not account.is_over


def test_strangers_with_little_go_after_all_that_use_more() -> None:
    account = Account(32 * MIB)
    few = [Connection(read_ms=0) for _ in range(16)]
    for each in few:
        account.set_size(each, FREE_BYTES)
    newest = Connection(read_ms=100)
    account.set_size(newest, 8 * MIB)
    assert closed(account) == [newest]
    many = [Connection(read_ms=ms) for ms in range(128)]
    for each in many:
        account.set_size(each, FREE_BYTES)
    # 144 use 9 MiB of the 8 that they may: the first 32 go, so that 7 are left.
    assert closed(account) == few + many[:16]


def test_a_stranger_that_becomes_a_client_is_counted_as_one() -> None:
    account = Account(32 * MIB)
    for _ in range(20):
        known = Connection()
        account.set_size(known, 6 * MIB)
        known.standing = Standing.CLIENT
        account.set_size(known, 0)
        assert closed(account) == []
    assert account.total == 0


def test_the_oldest_stranger_gives_way() -> None:
    accepted = AcceptedConnections()
    first, known, second = Connection(), Connection(), Connection()
    for each in (first, known, second):
        accepted.add(each)
    known.standing = Standing.CLIENT
    for expected in (first, second):
        found = accepted.choose("a", 0)
        assert found is not None
        assert found[0] is expected
        accepted.discard(expected)
    # All that is left is a client of the same address.
    assert accepted.choose("a", 0) is None


def test_an_address_that_has_most_connections_gives_way_to_others() -> None:
    accepted = AcceptedConnections()
    held = [Connection(Standing.CLIENT, read_ms=ms) for ms in (50, 10, 30)]
    node = Connection(Standing.PEER, read_ms=0)
    other = Connection(Standing.CLIENT, read_ms=1, address="b")
    for each in (*held, node, other):
        accepted.add(each)
    assert accepted.choose("a", 0) is None
    found = accepted.choose("c", 0)
    assert found is not None
    assert found[0] is held[1]
    accepted.discard(held[1])
    # A choice looks at many connections: there are not many in a moment.
    assert accepted.choose("c", CHOICE_MS - 1) is None
    found = accepted.choose("c", CHOICE_MS)
    assert found is not None
    assert found[0] is held[2]
    accepted.discard(held[2])
    # An address with hardly more than the others keeps what it has.
    assert accepted.choose("b", 2 * CHOICE_MS) is None
