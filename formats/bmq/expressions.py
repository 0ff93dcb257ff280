"""Subscription expressions: conditions on a message's properties.

    expression  := expression OP expression | ("!" | "~" | "-") expression | "(" expression ")" | operand
    operand     := property | "exists" "(" property ")" | integer | string | "true" | "false"

    from loosest to tightest:   ||   &&   == !=   < <= > >=   + -   * / %   ! ~ and the sign

Comparisons do not chain. A property is a letter followed by letters, digits, dots and underscores; an integer has 64
bits and includes its sign, so that `x -1` is not an expression; a string is in double quotes, and a backslash in it is
literal.

A message does not match if it lacks a property, or has one of another type than the expression compares it with;
`exists(p)` tests for a property without this effect. The right side of `&&` and `||` is evaluated only if needed.

Source: the reference's bmqeval::SimpleEvaluator, its grammar, limits and messages.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import cache, lru_cache
from typing import NamedTuple

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from formats.bmq.wire.properties import Property, PropertyType, decode_properties
from formats.errors import FormatError

__all__ = [
    "ErrorCode",
    "Expression",
    "ExpressionError",
    "Value",
    "Values",
    "compile_expression",
    "expression_values",
    "property_values",
]

EXPRESSION_SIZE_MAX = 128  # bytes of UTF-8
OPERATORS_MAX = 10  # a property counts as one
PROPERTIES_MAX = 10

# Maximum number of cached compiled expressions, which consumers share.
COMPILED_MAX = 4096

Value = bool | int | str
Values = Mapping[str, Value]

_GRAMMAR = r"""
?start: disjunction
?disjunction: disjunction OR conjunction | conjunction
?conjunction: conjunction AND equality | equality
?equality: relation ((EQ | NE) relation)?
?relation: sum ((LT | LE | GE | GT) sum)?
?sum: sum (PLUS | MINUS) product | product
?product: product (TIMES | DIVIDES | MODULUS) unary | unary
?unary: (NOT | MINUS) unary | operand
?operand: LPAR disjunction RPAR
    | EXISTS LPAR (PROPERTY | EXISTS) RPAR
    | PROPERTY | EXISTS | INTEGER | STRING | TRUE | FALSE

TRUE.3: /true(?![a-zA-Z0-9_.])/
FALSE.3: /false(?![a-zA-Z0-9_.])/
EXISTS.3: /exists(?![a-zA-Z0-9_.])/
PROPERTY.2: /[a-zA-Z][a-zA-Z0-9_.]*/
INTEGER.2: /-?[0-9]+/
STRING.2: /"(?:[^"\\]|\\[^\n])*"/
OR.1: "||"
AND.1: "&&"
EQ.1: "=="
NE.1: "!="
LE.1: "<="
GE.1: ">="
LT: "<"
GT: ">"
NOT: "!" | "~"
PLUS: "+"
MINUS: "-"
TIMES: "*"
DIVIDES: "/"
MODULUS: "%"
LPAR: "("
RPAR: ")"
BLANK: /[ \t\n]/
%ignore BLANK
"""

# Tokens that have other names in the reference's messages.
_NAMES = {
    "$END": "end of expression",
    "PROPERTY": "property",
    "STRING": "string",
    "INTEGER": "integer",
    "TRUE": "true",
    "FALSE": "false",
    "EXISTS": "exists",
    "LPAR": "(",
    "RPAR": ")",
    "NOT": "!",
    "PLUS": "+",
    "MINUS": "-",
    "TIMES": "*",
    "DIVIDES": "/",
    "MODULUS": "%",
    "EQ": "=",
    "NE": "<>",
    "LT": "<",
    "LE": "<=",
    "GE": ">=",
    "GT": ">",
}
# The two kinds of syntax error whose messages list expected tokens.
_EXPECTATIONS = {
    frozenset({"PROPERTY", "EXISTS"}): ", expecting property or exists",
    frozenset({"RPAR"}): ", expecting )",
}

_INT64_MAX = (1 << 63) - 1


class ErrorCode(IntEnum):
    """The reason why an expression cannot be used or did not match (source: bmqeval::ErrorType)."""

    SYNTAX = -100
    NO_PROPERTIES = -101
    TOO_COMPLEX = -102
    TOO_LONG = -103
    NAME = -1
    TYPE = -2
    ARITHMETIC = -4

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    ErrorCode.SYNTAX: "syntax error",
    ErrorCode.NO_PROPERTIES: "expression does not use any property",
    ErrorCode.TOO_COMPLEX: "subscription expression is too complex",
    ErrorCode.TOO_LONG: "subscription expression is too long",
    ErrorCode.NAME: "undefined name in subscription expression",
    ErrorCode.TYPE: "type error in expression",
    ErrorCode.ARITHMETIC: "arithmetic error in expression",
}


class ExpressionError(ValueError):
    """An expression that cannot be compiled or evaluated; the message has the place and the reason."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Expression:
    """A compiled expression."""

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str, evaluate: Callable[[Values], Value]) -> None:
        self.text = text
        self._evaluate = evaluate

    def value(self, values: Values) -> bool:
        """Evaluate the expression for a message's properties. `ExpressionError` without a boolean result."""
        result = self._evaluate(values)
        if type(result) is not bool:
            raise ExpressionError(ErrorCode.TYPE, f"{result!r} is no truth value")
        return result

    def matches(self, values: Values) -> bool:
        """Return True if a message with these properties matches; without a value it does not."""
        try:
            return self._evaluate(values) is True
        except ExpressionError:
            return False


def property_values(data: memoryview, has_properties: bool, schema_id: int) -> Values:
    """Read a message's properties for expressions: empty if they are invalid.

    The properties in `data` must not be compressed.
    """
    if not has_properties:
        return {}
    try:
        return expression_values(decode_properties(data, schema_id))
    except FormatError:
        return {}


def expression_values(properties: Iterable[Property]) -> dict[str, Value]:
    """Convert a message's properties for expressions: binary ones are omitted, and a character is a number."""
    values: dict[str, Value] = {}
    for name, kind, value in properties:
        if not isinstance(value, bytes):
            values[name] = value
        elif kind is PropertyType.CHAR:
            values[name] = int.from_bytes(value, "big", signed=True)
    return values


class _Node(NamedTuple):
    """A part of an expression; `literal` is its value if it is a boolean literal."""

    evaluate: Callable[[Values], Value]
    literal: bool | None = None


class _Compiler:
    """Compiles a syntax tree to closures, and counts operators."""

    def __init__(self) -> None:
        self.operators = 0
        self.properties = 0

    def compile(self, tree: Tree[Token] | Token) -> _Node:
        if isinstance(tree, Token):
            return self._token(tree)
        parts = tree.children
        first = parts[0]
        if isinstance(first, Token) and first.type == "LPAR":
            return self.compile(parts[1])
        self.operators += 1
        if len(parts) == 4:  # exists ( name )
            self.properties += 1
            return _exists(str(parts[2]))
        if isinstance(first, Token) and first.type in ("NOT", "MINUS"):
            inside = self.compile(parts[1])
            return _negation(inside) if first.type == "NOT" else _minus(inside)
        left, symbol, right = self.compile(first), parts[1], self.compile(parts[2])
        assert isinstance(symbol, Token)
        return _BINARY[symbol.type](left, right)

    def _token(self, token: Token) -> _Node:
        text = str(token)
        match token.type:
            case "TRUE" | "FALSE":
                literal = token.type == "TRUE"
                return _Node(lambda values: literal, literal)
            case "INTEGER":
                number = int(text)
                if not ~_INT64_MAX <= number <= _INT64_MAX:
                    raise ExpressionError(ErrorCode.SYNTAX, f"integer overflow at offset {token.start_pos}")
                return _Node(lambda values: number)
            case "STRING":
                string = text[1:-1].encode("latin-1").decode("utf-8", "surrogateescape")
                return _Node(lambda values: string)
            case _:
                self.operators += 1
                self.properties += 1
                return _property(text)


def _property(name: str) -> _Node:
    def evaluate(values: Values) -> Value:
        try:
            return values[name]
        except KeyError:
            raise ExpressionError(ErrorCode.NAME, f"the message has no property {name!r}") from None

    return _Node(evaluate)


def _exists(name: str) -> _Node:
    return _Node(lambda values: name in values)


def _truth(value: Value) -> bool:
    if type(value) is not bool:
        raise ExpressionError(ErrorCode.TYPE, f"{value!r} is no truth value")
    return value


def _number(value: Value) -> int:
    if type(value) is not int:
        raise ExpressionError(ErrorCode.TYPE, f"{value!r} is no number")
    return value


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _negation(inside: _Node) -> _Node:
    evaluate = inside.evaluate
    return _Node(lambda values: not _truth(evaluate(values)))


def _minus(inside: _Node) -> _Node:
    evaluate = inside.evaluate
    return _Node(lambda values: _wrapped(-_number(evaluate(values))))


def _both(left: _Node, right: _Node) -> _Node:
    first, second = left.evaluate, right.evaluate
    return _Node(lambda values: _truth(first(values)) and _truth(second(values)))


def _either(left: _Node, right: _Node) -> _Node:
    first, second = left.evaluate, right.evaluate
    return _Node(lambda values: _truth(first(values)) or _truth(second(values)))


def _equality(compare: Callable[[Value, Value], bool]) -> Callable[[_Node, _Node], _Node]:
    """Make `==` or `!=`. With a boolean literal, the result is the other side or its negation, of any type."""

    def make(left: _Node, right: _Node) -> _Node:
        if left.literal is not None and right.literal is not None:
            literal = compare(left.literal, right.literal)
            return _Node(lambda values: literal, literal)
        for known, other in ((left, right), (right, left)):
            if known.literal is not None:
                return other if compare(known.literal, True) else _negation(other)
        return _comparison(compare)(left, right)

    return make


def _comparison(compare: Callable[..., bool]) -> Callable[[_Node, _Node], _Node]:
    """Compare two strings, bytewise, or two numbers."""

    def make(left: _Node, right: _Node) -> _Node:
        first, second = left.evaluate, right.evaluate

        def evaluate(values: Values) -> Value:
            a, b = first(values), second(values)
            kind = type(a)
            if kind is not type(b) or kind is bool:
                raise ExpressionError(ErrorCode.TYPE, f"{a!r} and {b!r} cannot be compared")
            return compare(a, b)

        return _Node(evaluate)

    return make


def _arithmetic(calculate: Callable[[int, int], int]) -> Callable[[_Node, _Node], _Node]:
    def make(left: _Node, right: _Node) -> _Node:
        first, second = left.evaluate, right.evaluate

        def evaluate(values: Values) -> Value:
            a, b = first(values), second(values)
            return _wrapped(calculate(_number(a), _number(b)))

        return _Node(evaluate)

    return make


def _divide(a: int, b: int) -> int:
    """Divide, rounding towards zero."""
    _check_division(a, b)
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    """Return the remainder with the sign of the dividend."""
    _check_division(a, b)
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


def _check_division(a: int, b: int) -> None:
    if b == 0 or (a == ~_INT64_MAX and b == -1):
        raise ExpressionError(ErrorCode.ARITHMETIC, f"{a} cannot be divided by {b}")


_BINARY: dict[str, Callable[[_Node, _Node], _Node]] = {
    "OR": _either,
    "AND": _both,
    "EQ": _equality(operator.eq),
    "NE": _equality(operator.ne),
    "LT": _comparison(operator.lt),
    "LE": _comparison(operator.le),
    "GE": _comparison(operator.ge),
    "GT": _comparison(operator.gt),
    "PLUS": _arithmetic(operator.add),
    "MINUS": _arithmetic(operator.sub),
    "TIMES": _arithmetic(operator.mul),
    "DIVIDES": _arithmetic(_divide),
    "MODULUS": _arithmetic(_remainder),
}


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", keep_all_tokens=True)


@lru_cache(COMPILED_MAX)
def compile_expression(text: str) -> Expression:
    """Compile an expression. The text of its `ExpressionError` is the reference's."""
    # One character per byte: sizes and offsets count bytes.
    raw = text.encode("utf-8", "surrogateescape").decode("latin-1")
    if len(raw) > EXPRESSION_SIZE_MAX:
        reason = f"expression is too long ({len(raw)}), max allowed length: {EXPRESSION_SIZE_MAX}"
        raise ExpressionError(ErrorCode.TOO_LONG, reason)
    try:
        tree = _parser().parse(raw)
    except UnexpectedCharacters as error:
        reason = f"syntax error, unexpected invalid character at offset {error.pos_in_stream}"
        raise ExpressionError(ErrorCode.SYNTAX, reason) from None
    except UnexpectedToken as error:
        raise ExpressionError(ErrorCode.SYNTAX, _syntax_error(raw, error)) from None
    compiler = _Compiler()
    node = compiler.compile(tree)
    if compiler.operators > OPERATORS_MAX:
        reason = f"too many operators ({compiler.operators}), max allowed operators: {OPERATORS_MAX}"
        raise ExpressionError(ErrorCode.TOO_COMPLEX, reason)
    if compiler.properties == 0:
        raise ExpressionError(ErrorCode.NO_PROPERTIES, "expression does not use any properties")
    if compiler.properties > PROPERTIES_MAX:
        reason = f"expression uses too many properties ({compiler.properties}), max allowed properties: "
        raise ExpressionError(ErrorCode.TOO_COMPLEX, f"{reason}{PROPERTIES_MAX}")
    return Expression(text, node.evaluate)


def _syntax_error(raw: str, error: UnexpectedToken) -> str:
    token = error.token
    if token.type == "$END":
        # The reference gives the position of the last token that it read, blanks included.
        last = list(_parser().lex(raw, dont_ignore=True))
        at = (last[-1].start_pos or 0) if last else 0
    else:
        at = token.start_pos or 0
    expected = _EXPECTATIONS.get(frozenset(error.accepts or ()), "")
    return f"syntax error, unexpected {_NAMES.get(token.type, token.type)}{expected} at offset {at}"
