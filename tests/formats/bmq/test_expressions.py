"""The expression language: its grammar, its limits, what matches, and what is wrong with what does not compile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.expressions import ErrorCode, ExpressionError, Value, compile_expression, property_values
from formats.bmq.wire.properties import Property, PropertyType, encode_properties

INT64_MIN = -(1 << 63)

VALUES: dict[str, Value] = {
    "t": True,
    "f": False,
    "zero": 0,
    "one": 1,
    "two": 2,
    "n": 42,
    "minus": -1,
    "min": INT64_MIN,
    "s": "foo",
    "exists": 42,
    "dotted.name_1": 7,
}


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", ErrorCode.SYNTAX, "syntax error, unexpected end of expression at offset 0"),
        (" \t ", ErrorCode.SYNTAX, "syntax error, unexpected end of expression at offset 2"),
        ("x ==", ErrorCode.SYNTAX, "syntax error, unexpected end of expression at offset 2"),
        ("x == ", ErrorCode.SYNTAX, "syntax error, unexpected end of expression at offset 4"),
        ("42 @", ErrorCode.SYNTAX, "syntax error, unexpected invalid character at offset 3"),
        ("x = 42", ErrorCode.SYNTAX, "syntax error, unexpected invalid character at offset 2"),
        ("x | true", ErrorCode.SYNTAX, "syntax error, unexpected invalid character at offset 2"),
        ('x == "abc', ErrorCode.SYNTAX, "syntax error, unexpected invalid character at offset 5"),
        ('"ä" == x == y', ErrorCode.SYNTAX, "syntax error, unexpected = at offset 10"),
        ("x <> 42", ErrorCode.SYNTAX, "syntax error, unexpected > at offset 3"),
        ("x == y == z", ErrorCode.SYNTAX, "syntax error, unexpected = at offset 7"),
        ("x == y != z", ErrorCode.SYNTAX, "syntax error, unexpected <> at offset 7"),
        ("x < y < z", ErrorCode.SYNTAX, "syntax error, unexpected < at offset 6"),
        ("x >= y > z", ErrorCode.SYNTAX, "syntax error, unexpected > at offset 7"),
        ("x -1", ErrorCode.SYNTAX, "syntax error, unexpected integer at offset 2"),
        ("0name > 0", ErrorCode.SYNTAX, "syntax error, unexpected property at offset 1"),
        ("_name > 0", ErrorCode.SYNTAX, "syntax error, unexpected invalid character at offset 0"),
        ("() && x", ErrorCode.SYNTAX, "syntax error, unexpected ) at offset 1"),
        ("((true)", ErrorCode.SYNTAX, "syntax error, unexpected end of expression at offset 6"),
        ("x && && y", ErrorCode.SYNTAX, "syntax error, unexpected AND at offset 5"),
        ("exists(1)", ErrorCode.SYNTAX, "syntax error, unexpected integer, expecting property or exists at offset 7"),
        ("exists(x y", ErrorCode.SYNTAX, "syntax error, unexpected property, expecting ) at offset 9"),
        ("x != 9223372036854775808", ErrorCode.SYNTAX, "integer overflow at offset 5"),
        ("x != -9223372036854775809", ErrorCode.SYNTAX, "integer overflow at offset 5"),
        ("!" * 11 + "x", ErrorCode.TOO_COMPLEX, "too many operators (12), max allowed operators: 10"),
        ("a+b+c+d+e+f > 0", ErrorCode.TOO_COMPLEX, "too many operators (12), max allowed operators: 10"),
        ("true && true", ErrorCode.NO_PROPERTIES, "expression does not use any properties"),
        ("1 < 2", ErrorCode.NO_PROPERTIES, "expression does not use any properties"),
        ("x" * 129, ErrorCode.TOO_LONG, "expression is too long (129), max allowed length: 128"),
        ('x == "' + "ä" * 62 + '"', ErrorCode.TOO_LONG, "expression is too long (131), max allowed length: 128"),
    ],
)
def test_expressions_that_do_not_compile(text: str, code: ErrorCode, message: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        compile_expression(text)
    assert (raised.value.code, str(raised.value)) == (code, message)
    assert code.text


@pytest.mark.parametrize("text", ["x" * 128, "!" * 9 + "x", "a+b+c+d+e == 1", 'x == "' + "ä" * 60 + '"'])
def test_the_limits_are_inclusive(text: str) -> None:
    compile_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "t",
        "!f",
        "~f",
        "!!t",
        "n == 42",
        "42 == n",
        "n <= 42 && n >= 42",
        's == "foo"',
        '"bar" < s',
        's < "zig"',
        's > "fo"',
        's != "f"',
        "f && f || t",
        "t || f && f",
        "!f && t",
        "!(f && t)",
        "one + 2 == 3",
        "one - 2 == -1",
        "one - -1 == 2",
        "two * 20 + 2 == n",
        "two + 20 * 2 == n",
        "(two + 19) * 2 == n",
        "n / 2 == 21",
        "-n / 4 == -10",
        "-n % 4 == -2",
        "n % 10 == 2",
        "n % -10 == 2",
        "-n == -42",
        "-min == min",
        "9223372036854775807 + one == min",
        "one < two == true",
        "t == true",
        "f == false",
        "t != false",
        "true == t && true",
        "(true == false) == false && t",
        "exists(n)",
        "!exists(gone)",
        "!exists(gone) || gone > 1",
        "t || gone",
        "t || n",
        "exists == 42",
        "exists(exists)",
        "dotted.name_1 == 7",
        "zero == -0",
        " t\t&&\nt ",
    ],
)
def test_expressions_that_match(text: str) -> None:
    assert compile_expression(text).matches(VALUES)
    assert compile_expression(text).value(VALUES)


@pytest.mark.parametrize(
    "text",
    ["f", "t && f", "n < 42", 's == "bar"', "exists(gone)", "f && gone", "exists(gone) && gone > 1", "n != 42 || f"],
)
def test_expressions_that_do_not_match(text: str) -> None:
    assert not compile_expression(text).value(VALUES)
    assert not compile_expression(text).matches(VALUES)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("gone", ErrorCode.NAME),
        ("gone > 1 || t", ErrorCode.NAME),
        ("n", ErrorCode.TYPE),
        ("n + 1", ErrorCode.TYPE),
        ("s", ErrorCode.TYPE),
        ("!n", ErrorCode.TYPE),
        ("n || t", ErrorCode.TYPE),
        ("t && n", ErrorCode.TYPE),
        ("f || n", ErrorCode.TYPE),
        ("s == 42", ErrorCode.TYPE),
        ("42 == s", ErrorCode.TYPE),
        ("t < true", ErrorCode.TYPE),
        ("t == f", ErrorCode.TYPE),
        ("n == true", ErrorCode.TYPE),
        ("n == false", ErrorCode.TYPE),
        ("s + 1 == 1", ErrorCode.TYPE),
        ("-s == 1", ErrorCode.TYPE),
        ("t + 1 == 2", ErrorCode.TYPE),
        ("(one < two) < 3", ErrorCode.TYPE),
        ("n / zero == 0", ErrorCode.ARITHMETIC),
        ("n % zero == 0", ErrorCode.ARITHMETIC),
        ("min / minus == 0", ErrorCode.ARITHMETIC),
        ("min % minus == 0", ErrorCode.ARITHMETIC),
    ],
)
def test_expression_without_a_value_does_not_match(text: str, code: ErrorCode) -> None:
    expression = compile_expression(text)
    with pytest.raises(ExpressionError) as raised:
        expression.value(VALUES)
    assert raised.value.code is code
    assert not expression.matches(VALUES)


def test_strings_are_as_they_stand() -> None:
    """A backslash keeps a quote from ending the string, and stays."""
    expression = compile_expression(r'x == "say \"ä\"\n"')
    assert expression.matches({"x": r"say \"ä\"\n"})
    assert not expression.matches({"x": 'say "ä"\n'})


@given(st.text(max_size=140))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        expression = compile_expression(text)
    except (ExpressionError, UnicodeEncodeError):
        return
    assert expression.matches(VALUES) in (True, False)


TOKENS = [
    "n",
    "t",
    "s",
    "gone",
    "exists",
    "(",
    ")",
    "!",
    "-",
    "1",
    "-3",
    '"a"',
    "==",
    "<",
    "&&",
    "||",
    "+",
    "%",
    "true",
]


@given(st.lists(st.sampled_from(TOKENS), max_size=12))
def test_any_row_of_tokens_compiles_or_is_refused(tokens: list[str]) -> None:
    try:
        expression = compile_expression(" ".join(tokens))
    except ExpressionError:
        return
    assert expression.matches(VALUES) in (True, False)


@pytest.mark.parametrize("schema_id", [0, 1])
def test_properties_as_expressions_see_them(schema_id: int) -> None:
    kinds = PropertyType
    properties = [
        Property("bool", kinds.BOOL, True),
        Property("char", kinds.CHAR, b"\xff"),
        Property("short", kinds.SHORT, -2),
        Property("int", kinds.INT32, 3),
        Property("long", kinds.INT64, INT64_MIN),
        Property("text", kinds.STRING, "ä"),
        Property("binary", kinds.BINARY, b"abc"),
    ]
    data = memoryview(encode_properties(properties, schema_id) + b"payload")
    assert property_values(data, True, schema_id) == {
        "bool": True,
        "char": -1,
        "short": -2,
        "int": 3,
        "long": INT64_MIN,
        "text": "ä",
    }
    assert property_values(data, False, 0) == {}
    assert property_values(memoryview(b"\xff" * 40), True, schema_id) == {}
    assert not compile_expression("exists(binary)").matches(property_values(data, True, schema_id))
