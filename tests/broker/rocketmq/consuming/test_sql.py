"""SQL92 expressions over the properties of messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rocketmq.consuming.sql import DEPTH_MAX, EXPRESSION_BYTES_MAX, SqlError, SqlFilter, compile_sql


@pytest.mark.parametrize(
    ("text", "properties", "takes"),
    [
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5"}, False),
        ("a >= 5.0", {"a": "5"}, True),
        ("a < .5e1", {"a": "-7"}, True),
        ("a > b", {"a": "10", "b": "9.5"}, True),
        ("a > 5", {"a": "x"}, False),
        ("a > 5 OR b = '1'", {"a": "x", "b": "1"}, False),
        ("b = '1' OR a > 5", {"a": "x", "b": "1"}, True),
        ("a < 5", {"a": "3000000000"}, False),
        ("a = 3000000000", {"a": "3000000000"}, True),
        ("a BETWEEN 5 AND 16 AND a > 5", {"a": "16"}, True),
        ("a NOT BETWEEN 5 AND 16", {"a": "4"}, True),
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a NOT IN ('x')", {"a": "y"}, True),
        ("a NOT IN ('x')", {}, False),
        ("a IS NULL", {}, True),
        ("a is not null", {"a": ""}, True),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("NOT a = 'x'", {"a": "y"}, False),
        ("NOT (a = 'x')", {"a": "y"}, True),
        ("a <> 'x'", {"a": "y"}, True),
        ("a <> 'x'", {}, False),
        ("a = 'x' OR b IS NULL", {}, True),
        ("a CONTAINS 'b' AND b NOT STARTSWITH 'q' AND c ENDSWITH 'z'", {"a": "abc", "b": "x", "c": "z"}, True),
        ("a NOT CONTAINS 'b'", {}, False),
        ("a ENDSWITH ''", {"a": "x"}, False),
        ("TRUE", {}, True),
        ("FALSE OR a", {"a": "true"}, False),
        ("a = TRUE", {"a": "True"}, True),
        ("TRUE = a", {"a": "true"}, False),
        ("-a = 1", {"a": "-1"}, False),
        ("a = -1", {"a": "-1"}, True),
        ("inside = '1' AND nots = '2'", {"inside": "1", "nots": "2"}, True),
        ("a /* one */ = -- two\n '1'", {"a": "1"}, True),
    ],
)
def test_expression_takes(text: str, properties: dict[str, str], takes: bool) -> None:
    assert SqlFilter(text).takes(properties) is takes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it cannot be read"),
        ("a >", "it cannot be read"),
        ("a = 'x", "it cannot be read at ''x'"),
        ("a ! b", "it cannot be read at '! b'"),
        ("a > 'x'", "'x' cannot be compared by order"),
        ("(a = 1) > 5", "'a condition' cannot be compared by order"),
        ("a = NULL", "use IS NULL"),
        ("a BETWEEN 9 AND 1", "'9' is greater than '1'"),
        ("5 IN ('x')", "IN needs a property"),
        ("5", "'5' is neither true nor false"),
        ("a = 99999999999999999999", "has more than 64 bits"),
        ("NOT " * DEPTH_MAX + "a = 1", f"it is nested deeper than {DEPTH_MAX} levels"),
        ("- " * DEPTH_MAX + "1 = a", f"it is nested deeper than {DEPTH_MAX} levels"),
        ("a = '" + "x" * EXPRESSION_BYTES_MAX + "'", f"it is longer than {EXPRESSION_BYTES_MAX} bytes"),
    ],
)
def test_invalid_expression_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SqlError) as refused:
        compile_sql(text)
    assert reason in str(refused.value)


@pytest.mark.slow
def test_long_expressions_are_flat() -> None:
    terms = EXPRESSION_BYTES_MAX // len("a = 1 AND ")
    assert SqlFilter(" AND ".join(["a = 1"] * terms)).takes({"a": "1"})
    deep = EXPRESSION_BYTES_MAX // 2 - 3
    assert SqlFilter("(" * deep + "a = 1" + ")" * deep).takes({"a": "1"})


@given(st.lists(st.sampled_from(["a", "'x'", "5", "=", "<>", ">", "AND", "OR", "NOT", "IN", "(", ")", "IS", "NULL"])))
def test_any_words_are_an_expression_or_refused(words: list[str]) -> None:
    try:
        expression = SqlFilter(" ".join(words))
    except SqlError:
        return
    assert isinstance(expression.takes({"a": "5"}), bool)
