"""SQL92 expressions by which consumers select messages by their properties.

    a > 5 AND (b = 'x' OR b IN ('y', 'z')) AND NOT c BETWEEN 1 AND 3 AND d IS NOT NULL AND e STARTSWITH 'f'

Properties are text, converted where they are compared with a number. A comparison with a missing property is neither
true nor false; a message matches only if the whole expression is true. It does not match if a property that must be a
number is none.

Source: SelectorParser.jj, ComparisonExpression, LogicExpression, UnaryExpression.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Transformer
from lark.exceptions import LarkError, VisitError

from formats.rocketmq.numbers import read_int, read_long

__all__ = ["EXPRESSION_BYTES_MAX", "SqlError", "SqlFilter", "compile_sql", "is_compiled"]

_GRAMMAR: Final = r"""
start: or_expression
?or_expression: and_expression (_OR and_expression)*
?and_expression: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> not_equal
    | equality _IS _NULL -> is_null
    | equality _IS _NOT _NULL -> is_not_null
?comparison: unary
    | comparison ">" unary -> greater
    | comparison ">=" unary -> greater_equal
    | comparison "<" unary -> less
    | comparison "<=" unary -> less_equal
    | comparison _CONTAINS STRING -> contains
    | comparison _NOT _CONTAINS STRING -> not_contains
    | comparison _STARTSWITH STRING -> starts_with
    | comparison _NOT _STARTSWITH STRING -> not_starts_with
    | comparison _ENDSWITH STRING -> ends_with
    | comparison _NOT _ENDSWITH STRING -> not_ends_with
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN "(" STRING ("," STRING)* ")" -> is_in
    | comparison _NOT _IN "(" STRING ("," STRING)* ")" -> not_in
?unary: "+" unary
    | "-" unary -> negate
    | _NOT unary -> negation
    | primary
?primary: STRING -> string
    | FLOAT -> float
    | DECIMAL -> decimal
    | TRUE -> true
    | FALSE -> false
    | _NULL -> null
    | NAME -> name
    | "(" or_expression ")"

_OR.2: /OR\b/i
_AND.2: /AND\b/i
_NOT.2: /NOT\b/i
_IS.2: /IS\b/i
_IN.2: /IN\b/i
_NULL.2: /NULL\b/i
_BETWEEN.2: /BETWEEN\b/i
_CONTAINS.2: /CONTAINS\b/i
_STARTSWITH.2: /STARTSWITH\b/i
_ENDSWITH.2: /ENDSWITH\b/i
TRUE.2: /TRUE\b/i
FALSE.2: /FALSE\b/i
NAME: /[a-zA-Z_$][a-zA-Z0-9_$]*/
FLOAT.3: /([0-9]+\.[0-9]*([eE][-+]?[0-9]+)?|\.[0-9]+([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)/
DECIMAL.2: /(0|[1-9][0-9]*)[lL]?/
STRING: /'(''|[^'])*'/
%ignore /[ \t\n\r\f]+/
%ignore /--[^\n\r]*[\n\r]/
%ignore /\/\*([^*]|\*+[^*\/])*\*+\//
"""

# Bounds that the original does not have. Compiling an expression, and evaluating it for one message with the largest
# properties, takes less than 20 ms each. The time of a search is proportional to the length of the value and, in the
# worst case, to that of the searched text.
EXPRESSION_BYTES_MAX: Final = 8 << 10
DEPTH_MAX: Final = 100
SEARCHES_MAX: Final = 64
SEARCHED_CHARACTERS_MAX: Final = 2048
# Longer texts are not numbers.
_NUMBER_CHARACTERS_MAX: Final = 1024
# For all cached expressions.
_COMPILED_BYTES_MAX: Final = 128 << 10

# Units of work (see `Scheduler`): per message, per property, per byte of properties, per term of the expression, and
# per term and byte of a value that may be a number.
_MESSAGE_UNITS: Final = 10_000
_PROPERTY_UNITS: Final = 200
_BYTE_UNITS: Final = 3
_TERM_UNITS: Final = 400
_DIGIT_UNITS: Final = 5
_INT_BITS = 31

Value = str | int | float | bool | None
Values = Mapping[str, str]
Evaluate = Callable[[Values], Value]


class SqlError(Exception):
    """An invalid expression; the text says why."""


class _Mismatch(Exception):
    """Values that cannot be compared: the message does not match."""


class _Term(NamedTuple):
    evaluate: Evaluate
    is_boolean: bool = False
    name: str | None = None
    constant: Any = None
    is_constant: bool = False
    depth: int = 1


_FLOAT = re.compile(r"\s*+[-+]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][-+]?[0-9]{1,6})?[fFdD]?\s*+")


def _to_float(text: str) -> float:
    """Convert text to a float as Java reads a double."""
    if len(text) > _NUMBER_CHARACTERS_MAX or not _FLOAT.fullmatch(text):
        raise _Mismatch
    return float(text.strip().rstrip("fFdD"))


def _like(text: str, number: int | float) -> int | float:
    """Convert text to another number's kind: an int, a long or a double."""
    if isinstance(number, float):
        return _to_float(text)
    value = read_int(text) if -(1 << _INT_BITS) <= number < 1 << _INT_BITS else read_long(text)
    if value is None:
        raise _Mismatch
    return value


def _order(left: Any, right: Any) -> int:
    """Return a number less than, equal to or greater than 0, as `left` is to `right`."""
    if type(left) is not type(right):
        if isinstance(left, str):
            left = len(left) == 4 and left.lower() == "true" if isinstance(right, bool) else _like(left, right)
        elif isinstance(left, bool):
            if isinstance(right, str):
                raise _Mismatch
            return -1
        elif isinstance(right, str):
            right = _like(right, left)
        elif isinstance(right, bool):
            return -1
    return int(left > right) - int(left < right)


def _ordered(left: Evaluate, right: Evaluate, holds: Callable[[int, int], bool]) -> Evaluate:
    def evaluate(values: Values) -> Value:
        one, other = left(values), right(values)
        if one is None or other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            one, other = _to_float(one), _to_float(other)
        return holds(_order(one, other), 0)

    return evaluate


def _equal(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(values: Values) -> Value:
        one, other = left(values), right(values)
        if one is None or other is None:
            return True if one is other else None if one is None else False
        return _order(one, other) == 0

    return evaluate


def _not(right: Evaluate) -> Evaluate:
    def evaluate(values: Values) -> Value:
        value = right(values)
        return None if value is None else not value

    return evaluate


def _any_or_all(terms: list[Evaluate], decides: bool) -> Evaluate:
    """Return OR if true decides, and AND if false does."""

    def evaluate(values: Values) -> Value:
        is_unknown = False
        for term in terms:
            value = term(values)
            if value is None:
                is_unknown = True
            elif bool(value) is decides:
                return decides
        return None if is_unknown else not decides

    return evaluate


def _searched(term: _Term, text: str, found: Callable[[str, str], bool], wanted: bool) -> _Term:
    def evaluate(values: Values) -> Value:
        value = term.evaluate(values)
        return bool(text) and isinstance(value, str) and found(value, text) is wanted

    return _Term(evaluate, is_boolean=True, depth=term.depth + 1)


def _unquote(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


def _condition(term: _Term) -> _Term:
    """Return a term as a condition. A property alone is text, which is never true."""
    if term.is_boolean:
        return term
    if term.name is not None:
        return _Term(lambda values: None if term.evaluate(values) is None else False, is_boolean=True)
    raise SqlError(f"'{term.constant}' is neither true nor false")


class _Builder(Transformer[Token, _Term]):
    def __init__(self) -> None:
        super().__init__()
        # The lengths of the texts that the current expression searches for.
        self.searched: list[int] = []

    def start(self, items: list[_Term]) -> _Term:
        return _condition(items[0])

    def _logic(self, items: list[_Term], decides: bool) -> _Term:
        terms = [_condition(item) for item in items]
        depth = 1 + max(term.depth for term in terms)
        return _checked(_Term(_any_or_all([term.evaluate for term in terms], decides), is_boolean=True, depth=depth))

    def or_expression(self, items: list[_Term]) -> _Term:
        return self._logic(items, True)

    def and_expression(self, items: list[_Term]) -> _Term:
        return self._logic(items, False)

    def negation(self, items: list[_Term]) -> _Term:
        term = _condition(items[0])
        return _checked(_Term(_not(term.evaluate), is_boolean=True, depth=term.depth + 1))

    def negate(self, items: list[_Term]) -> _Term:
        (term,) = items
        if term.is_constant and isinstance(term.constant, int | float) and not isinstance(term.constant, bool):
            return _constant(-term.constant, term.depth + 1)
        return _checked(_Term(lambda values: None, depth=term.depth + 1))

    # -- comparisons

    def equal(self, items: list[_Term]) -> _Term:
        for item in items:
            if item.is_constant and item.constant is None:
                raise SqlError("'NULL' cannot be compared: use IS NULL")
        return _comparison(_equal(items[0].evaluate, items[1].evaluate), items)

    def not_equal(self, items: list[_Term]) -> _Term:
        return _comparison(_not(self.equal(items).evaluate), items)

    def is_null(self, items: list[_Term]) -> _Term:
        return _comparison(_equal(items[0].evaluate, lambda values: None), items)

    def is_not_null(self, items: list[_Term]) -> _Term:
        return _comparison(_not(_equal(items[0].evaluate, lambda values: None)), items)

    def _ordered(self, items: list[_Term], holds: Callable[[int, int], bool]) -> _Term:
        for item in items:
            is_number = isinstance(item.constant, int | float) and not isinstance(item.constant, bool)
            if item.is_boolean or (item.is_constant and not is_number):
                raise SqlError(f"'{item.constant if item.is_constant else 'a condition'}' cannot be compared by order")
        return _comparison(_ordered(items[0].evaluate, items[1].evaluate, holds), items)

    def greater(self, items: list[_Term]) -> _Term:
        return self._ordered(items, operator.gt)

    def greater_equal(self, items: list[_Term]) -> _Term:
        return self._ordered(items, operator.ge)

    def less(self, items: list[_Term]) -> _Term:
        return self._ordered(items, operator.lt)

    def less_equal(self, items: list[_Term]) -> _Term:
        return self._ordered(items, operator.le)

    def between(self, items: list[_Term]) -> _Term:
        value, low, high = items
        if low.is_constant and high.is_constant:
            if low.constant is None or high.constant is None:
                raise SqlError("BETWEEN takes no NULL")
            try:
                is_empty = _order(high.constant, low.constant) < 0
            except _Mismatch:
                raise SqlError(f"'{low.constant}' and '{high.constant}' cannot be compared") from None
            if is_empty:
                raise SqlError(f"BETWEEN: '{low.constant}' is greater than '{high.constant}'")
        return self._logic([self.greater_equal([value, low]), self.less_equal([value, high])], False)

    def not_between(self, items: list[_Term]) -> _Term:
        value, low, high = items
        return self._logic([self.less([value, low]), self.greater([value, high])], True)

    def _in(self, items: list[Any], wanted: bool) -> _Term:
        term: _Term = items[0]
        if term.name is None:
            raise SqlError("IN needs a property")
        texts = frozenset(_unquote(each) for each in items[1:])

        def evaluate(values: Values) -> Value:
            value = term.evaluate(values)
            return None if value is None else (value in texts) is wanted

        return _Term(evaluate, is_boolean=True)

    def is_in(self, items: list[Any]) -> _Term:
        return self._in(items, True)

    def not_in(self, items: list[Any]) -> _Term:
        return self._in(items, False)

    def _contains(self, items: list[Any], wanted: bool) -> _Term:
        text = _unquote(items[1])
        self.searched.append(len(text))
        return _searched(items[0], text, operator.contains, wanted)

    def contains(self, items: list[Any]) -> _Term:
        return self._contains(items, True)

    def not_contains(self, items: list[Any]) -> _Term:
        return self._contains(items, False)

    def starts_with(self, items: list[Any]) -> _Term:
        return _searched(items[0], _unquote(items[1]), str.startswith, True)

    def not_starts_with(self, items: list[Any]) -> _Term:
        return _searched(items[0], _unquote(items[1]), str.startswith, False)

    def ends_with(self, items: list[Any]) -> _Term:
        return _searched(items[0], _unquote(items[1]), str.endswith, True)

    def not_ends_with(self, items: list[Any]) -> _Term:
        return _searched(items[0], _unquote(items[1]), str.endswith, False)

    # -- operands

    def name(self, items: list[Token]) -> _Term:
        name = str(items[0])
        return _Term(lambda values: values.get(name), name=name)

    def string(self, items: list[Token]) -> _Term:
        return _constant(_unquote(items[0]))

    def float(self, items: list[Token]) -> _Term:
        return _constant(float(items[0]))

    def decimal(self, items: list[Token]) -> _Term:
        text = str(items[0]).rstrip("lL")
        number = read_long(text)
        if number is None:
            raise SqlError(f"{text[:30]} has more than 64 bits")
        return _constant(number)

    def true(self, items: list[Token]) -> _Term:
        return _constant(True)

    def false(self, items: list[Token]) -> _Term:
        return _constant(False)

    def null(self, items: list[Token]) -> _Term:
        return _constant(None)


def _constant(value: Value, depth: int = 1) -> _Term:
    is_boolean = isinstance(value, bool) or value is None
    return _checked(_Term(lambda values: value, is_boolean=is_boolean, constant=value, is_constant=True, depth=depth))


def _comparison(evaluate: Evaluate, items: list[_Term]) -> _Term:
    return _checked(_Term(evaluate, is_boolean=True, depth=1 + max(item.depth for item in items)))


def _checked(term: _Term) -> _Term:
    if term.depth > DEPTH_MAX:
        raise SqlError(f"it is nested deeper than {DEPTH_MAX} levels")
    return term


class SqlFilter:
    """A compiled expression. Raises `SqlError` for an invalid text, or one beyond the bounds."""

    def __init__(self, text: str) -> None:
        if len(text.encode(errors="replace")) > EXPRESSION_BYTES_MAX:
            raise SqlError(f"it is longer than {EXPRESSION_BYTES_MAX} bytes")
        parser, builder = _parser()
        builder.searched.clear()
        try:
            self._evaluate = parser.parse(text).evaluate  # type: ignore[attr-defined]
        except VisitError as error:
            if isinstance(error.orig_exc, SqlError):
                raise error.orig_exc from None
            raise
        except LarkError as error:
            at = getattr(error, "pos_in_stream", None)
            where = "at its end" if at is None or at >= len(text) else f"at '{text[at : at + 20]}'"
            raise SqlError(f"it cannot be read {where}") from None
        if len(builder.searched) > SEARCHES_MAX or sum(builder.searched) > SEARCHED_CHARACTERS_MAX:
            bound = f"{SEARCHES_MAX} texts, of {SEARCHED_CHARACTERS_MAX} characters in all"
            raise SqlError(f"it searches for more than {bound}")
        # An upper bound on the terms: each has a blank or an operator of its own.
        terms = 1 + len(_TERM_ENDS.findall(text))
        self._units = _MESSAGE_UNITS + terms * _TERM_UNITS
        self._digit_units = terms * _DIGIT_UNITS
        # In the worst case 3 ns per byte and search, and 1/6 ns per byte and character of the searched texts.
        self._byte_units = _BYTE_UNITS * (1 + len(builder.searched)) + sum(builder.searched) // 6

    def takes(self, properties: Values) -> bool:
        try:
            return self._evaluate(properties) is True
        except _Mismatch:
            return False

    def units(self, properties: bytes) -> int:
        """Return an upper bound on the work of decoding properties and evaluating the expression."""
        size = len(properties)
        units = self._units + self._byte_units * size + _PROPERTY_UNITS * properties.count(b"\x02")
        return units + self._digit_units * min(size, _NUMBER_CHARACTERS_MAX)


_TERM_ENDS = re.compile(r"[\s=<>(+-]")


@cache
def _parser() -> tuple[Lark, _Builder]:
    builder = _Builder()
    return Lark(_GRAMMAR, parser="lalr", transformer=builder, maybe_placeholders=False), builder


_compiled: Final[dict[str, SqlFilter]] = {}


def is_compiled(text: str) -> bool:
    return text in _compiled


def compile_sql(text: str) -> SqlFilter:
    """Compile an expression, or take it from the cache. Raises `SqlError`."""
    known = _compiled.get(text)
    if known is None:
        known = SqlFilter(text)
        if sum(map(len, _compiled)) + len(text) > _COMPILED_BYTES_MAX:
            _compiled.clear()
        _compiled[text] = known
    return known
