from __future__ import annotations

import errno
import os

import pytest

from broker.shell.process.os_errors import os_error_line, with_remedy


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "; make it writable, or name another --dir"),
        (errno.EROFS, "; mount it for writing, or name another --dir"),
        (errno.ENOTDIR, "; name another --dir"),
        (errno.ENOSPC, "; free space on its disk, or name another --dir"),
        (errno.EIO, "; the disk failed: see the kernel's log"),
        (errno.EMFILE, "; raise the limit of open files (ulimit -n)"),
        (errno.EPIPE, ""),
    ],
)
def test_the_remedy_follows_from_the_cause(number: int, remedy: str) -> None:
    error = OSError(number, os.strerror(number), "/there/store")
    assert os_error_line(error, "--dir") == f"/there/store: {os.strerror(number)}{remedy}"


def test_an_error_without_number_or_file_is_told_as_it_is() -> None:
    assert os_error_line(OSError("the socket went away")) == "the socket went away"
    assert os_error_line(OSError(errno.EBADF, "Bad file descriptor")) == "Bad file descriptor"


def test_a_text_about_too_few_descriptors_gets_the_remedy_once() -> None:
    told = "a ledger: Too many open files; raise the limit of open files (ulimit -n)"
    assert with_remedy("a ledger: Too many open files") == told
    assert with_remedy(told) == told
    assert with_remedy("a ledger: Permission denied") == "a ledger: Permission denied"
