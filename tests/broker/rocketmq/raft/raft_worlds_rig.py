"""The words that a Raft group agrees on in tests."""

from __future__ import annotations

from formats.errors import FormatError


class Words:
    """A machine whose state is the list of the commands that it was given."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def check(self, text: str) -> None:
        if not text.startswith("w"):
            raise FormatError("word", 0, text)

    def check_state(self, text: str) -> None:
        for word in text.split():
            self.check(word)

    def apply(self, text: str) -> None:
        self.words.append(text)

    def restore(self, text: str) -> None:
        self.words = text.split()

    def state(self) -> str:
        return " ".join(self.words)
