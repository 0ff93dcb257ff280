"""Queue URIs: the parts, what cannot stand where, and that nothing but FormatError comes out."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.uri import QUEUE_NAME_LENGTH_MAX, QueueUri, parse_uri
from formats.errors import FormatError

WORD = "abcXYZ019_-"
names = st.text(WORD + ".", min_size=1, max_size=QUEUE_NAME_LENGTH_MAX)
domains = st.text(WORD + ".", min_size=1)
tiers = st.text("abcXYZ019-")
uris = st.builds(QueueUri, domains, tiers, names, st.text(WORD + "."))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("bmq://my.domain/queue-foo-bar", ("my.domain", "", "queue-foo-bar", "")),
        ("bmq://d/q", ("d", "", "q", "")),
        ("bmq://ts_1.myapp/my.queue?id=my.app", ("ts_1.myapp", "", "my.queue", "my.app")),
        ("bmq://ts.myapp.~tst/my.queue", ("ts.myapp", "tst", "my.queue", "")),
        ("bmq://ts.myapp.~lcl-fooBar/q?id=a-b_c", ("ts.myapp", "lcl-fooBar", "q", "a-b_c")),
        ("bmq://ends.with.dot./q", ("ends.with.dot.", "", "q", "")),
        ("bmq://./.", (".", "", ".", "")),
        ("bmq://d/" + "q" * QUEUE_NAME_LENGTH_MAX, ("d", "", "q" * QUEUE_NAME_LENGTH_MAX, "")),
    ],
)
def test_parts(text: str, parts: tuple[str, str, str, str]) -> None:
    uri = parse_uri(text)
    assert uri == parts
    assert str(uri) == text


def test_a_queue_has_one_canonical_uri_for_all_its_readers() -> None:
    uri = parse_uri("bmq://my.domain.~tst/q?id=foo")
    assert uri.canonical == "bmq://my.domain.~tst/q"
    assert uri.qualified_domain == "my.domain.~tst"
    assert parse_uri("bmq://my.domain/q?id=foo").qualified_domain == "my.domain"


@pytest.mark.parametrize(
    ("text", "offset", "reason"),
    [
        ("", 0, "Invalid scheme"),
        ("BMQ://d/q", 0, "Invalid scheme"),
        (" bmq://d/q", 0, "Invalid scheme"),
        ("bmq:/d/q", 0, "Invalid scheme"),
        ("bmq://", 6, "Missing domain"),
        ("bmq:///q", 6, "Missing domain"),
        ("bmq://.~tst/q", 6, "Missing domain"),
        ("bmq://$%@/q", 6, "Domain parsing failed: unsupported char '$'"),
        ("bmq://a~b/q", 7, "Domain parsing failed: unsupported char '~'"),
        ("bmq://a b/q", 7, "Domain parsing failed: unsupported char ' '"),
        ("bmq://é/q", 6, "Domain parsing failed: unsupported char 'é'"),
        ("bmq://d\n", 7, "Domain parsing failed"),
        ("bmq://d", 7, "Missing queue"),
        ("bmq://d/", 8, "Missing queue"),
        ("bmq://d/?id=a", 8, "Missing queue"),
        ("bmq://d.~", 9, "Empty tier"),
        ("bmq://d.~/q", 9, "Empty tier"),
        ("bmq://d.~tst", 12, "Missing queue"),
        ("bmq://d.~a_b/q", 10, "Tier parsing failed: unsupported char '_'"),
        ("bmq://d.~a.~b/q", 10, "Tier parsing failed: unsupported char '.'"),
        ("bmq://d/q/r", 9, "Path parsing failed: unsupported char '/'"),
        ("bmq://d/q&id=a", 9, "Path parsing failed: unsupported char '&'"),
        ("bmq://d/q\n", 9, "Path parsing failed"),
        ("bmq://d/" + "q" * (QUEUE_NAME_LENGTH_MAX + 1), 8, "Queue name exceeds 64 characters"),
        ("bmq://d/q?", 10, "Query parsing failed: no separator found"),
        ("bmq://d/q?id", 10, "Query parsing failed: no separator found"),
        ("bmq://d/q?id=", 13, 'Query parsing failed: missing value after "="'),
        ("bmq://d/q?pid=foo", 10, 'Query parsing failed: unsupported query "pid"'),
        ("bmq://d/q?id==", 13, "Query parsing failed: unsupported char '='"),
        ("bmq://d/q?id=foo&", 16, "Query parsing failed: unsupported char '&'"),
        ("bmq://d/q?id=foo?id=bar", 16, "Query parsing failed: unsupported char '?'"),
    ],
)
def test_uri_with_an_invalid_character_is_refused(text: str, offset: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_uri(text)
    assert (caught.value.path, caught.value.offset) == ("uri", offset)
    assert caught.value.reason.startswith(reason)


@given(uris)
def test_round_trip(uri: QueueUri) -> None:
    assert parse_uri(str(uri)) == uri


@given(uris, st.data())
def test_a_changed_uri_reads_as_itself_or_not_at_all(uri: QueueUri, data: st.DataObject) -> None:
    text = str(uri)
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.text("./~?=&:idé\n\0 ", max_size=4)) + text[at + data.draw(st.integers(0, 3)) :]
    with contextlib.suppress(FormatError):
        assert str(parse_uri(changed)) == changed


@given(st.text())
def test_any_text_is_a_uri_or_a_format_error(text: str) -> None:
    for candidate in (text, f"bmq://{text}", f"bmq://d/{text}", f"bmq://d/q?id={text}"):
        with contextlib.suppress(FormatError):
            assert str(parse_uri(candidate)) == candidate
