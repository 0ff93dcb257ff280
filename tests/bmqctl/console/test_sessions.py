"""Sessions of browsers: their secrets, their end, and how many there are."""

from __future__ import annotations

from bmqctl.console.sessions import IDLE_S, SESSIONS_MAX, Sessions


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_session_is_found_by_its_key_and_proved_by_its_token() -> None:
    sessions: Sessions[str] = Sessions(Clock(), lambda shown: None)
    ada, bob = sessions.begin("ada", "a"), sessions.begin(None, "b")
    assert sessions.find(ada.key) is ada
    assert (sessions.find("other"), sessions.find(None), sessions.find(ada.token)) == (None, None, None)
    assert ada.is_token(ada.token)
    assert not ada.is_token(bob.token)
    assert not ada.is_token("")
    assert not ada.is_token("ü")


def test_a_session_that_is_idle_ends() -> None:
    clock = Clock()
    ended: list[str] = []
    sessions: Sessions[str] = Sessions(clock, ended.append)
    ada, bob = sessions.begin("ada", "a"), sessions.begin("bob", "b")
    clock.now_s = IDLE_S
    assert sessions.find(ada.key) is ada
    clock.now_s = IDLE_S + 1
    assert sessions.find(bob.key) is None
    assert sessions.find(ada.key) is ada
    assert ended == ["b"]
    sessions.end(ada)
    sessions.end(ada)
    assert ended == ["b", "a"]


def test_strangers_end_no_session_of_a_person() -> None:
    clock = Clock()
    sessions: Sessions[int] = Sessions(clock, lambda shown: None)
    person = sessions.begin("ada", 0)
    for number in range(2 * SESSIONS_MAX):
        clock.now_s += 1
        sessions.begin(None, number)
    assert sessions.find(person.key) is person
    first = sessions.begin("bob", 0)
    for number in range(SESSIONS_MAX - 1):
        clock.now_s += 1
        sessions.begin("ops", number)
    # Persons are bounded as well, and end no session without a login.
    assert (sessions.find(person.key), sessions.find(first.key)) == (None, first)
    assert len(sessions) == 2 * SESSIONS_MAX


def test_requests_without_a_cookie_end_no_session_that_a_browser_uses() -> None:
    clock = Clock()
    sessions: Sessions[int] = Sessions(clock, lambda shown: None)
    browser = sessions.begin(None, 0)
    assert sessions.find(browser.key) is browser
    for number in range(2 * SESSIONS_MAX):
        clock.now_s += 1
        sessions.begin(None, number)
    assert sessions.find(browser.key) is browser
    assert len(sessions) == SESSIONS_MAX


def test_strangers_do_not_fill_the_memory() -> None:
    clock = Clock()
    ended: list[int] = []
    sessions: Sessions[int] = Sessions(clock, ended.append)
    for number in range(SESSIONS_MAX + 3):
        clock.now_s += 1
        sessions.begin(None, number)
    assert len(sessions) == SESSIONS_MAX
    assert ended == [0, 1, 2]
    sessions.end_all()
    assert len(sessions) == 0
