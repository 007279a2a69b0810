"""The parser: a filter's text to its tree, in the WHERE-clause subset of Spark SQL that `docs/language.md` describes.

It is a hand-written recursive descent over the tokens. AND and OR chains are flat, so that only parentheses and NOT
nest, at most `NESTING_MAX` deep. Syntax that Spark accepts and we do not is refused by name, with what to write
instead.
"""

from __future__ import annotations

from typing import NoReturn

from meetpoint.errors import FilterError, LimitError
from meetpoint.language.filters.like import check_pattern
from meetpoint.language.names import NAME_LENGTH_MAX, RESERVED, join_name
from meetpoint.language.syntax.lexer import BadLiteralError, Token, read_number, read_string, read_timestamp, tokenize
from meetpoint.language.syntax.tree import (
    BARE_SLOT,
    And,
    Between,
    Compare,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    TextTest,
)
from meetpoint.language.values import Kind

__all__ = ["NESTING_MAX", "parse_tree"]

NESTING_MAX = 64
"""Levels of nested parentheses and NOT."""

_COMPARISONS: dict[str, Comparison] = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED: dict[Comparison, Comparison] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_TESTS = ("STARTSWITH", "ENDSWITH", "CONTAINS")
_NO_FUNCTIONS = "only startswith(a, 's'), endswith(a, 's') and contains(a, 's') are understood"
_REFUSED_OPERATORS: dict[str, tuple[str, str]] = {
    "RLIKE": ("regular expressions are not part of a filter", "write LIKE with % and _"),
    "REGEXP": ("regular expressions are not part of a filter", "write LIKE with % and _"),
    "ILIKE": ("ILIKE is not part of a filter", "write LIKE for each spelling that you want: case matters"),
    "COLLATE": ("collations are not part of a filter", "leave it out: strings compare by code point"),
    "DIV": ("arithmetic is not part of a filter", "compare one attribute with one literal"),
    "==": ("== is not an operator here", "write ="),
    "<=>": ("<=> is not an operator here", "write = , or IS NULL for a missing value"),
    "+": ("arithmetic is not part of a filter", "compare one attribute with one literal"),
    "-": ("arithmetic is not part of a filter", "compare one attribute with one literal"),
}


def parse_tree(text: str) -> Node:
    """Return the tree of a filter's text; FilterError has the position, the piece and what to write instead."""
    return _Parser(text).whole()


class _Parser:
    """A single pass over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0
        self._slots = 0

    # -- conditions ------------------------------------------------------------------------------------------------

    def whole(self) -> Node:
        if self._peek().sort == "end":
            self._refuse(self._peek(), "the filter is empty", "write a condition such as price > 8.30, or TRUE for all")
        node = self._either()
        token = self._peek()
        if token.sort != "end":
            self._refuse_rest(token)
        return node

    def _either(self) -> Node:
        children = [self._both()]
        while self._take_word("OR"):
            children.append(self._both())
        return children[0] if len(children) == 1 else Or(tuple(children))

    def _both(self) -> Node:
        children = [self._condition()]
        while self._take_word("AND"):
            children.append(self._condition())
        return children[0] if len(children) == 1 else And(tuple(children))

    def _condition(self) -> Node:
        token = self._peek()
        if token.word == "NOT":
            self._enter(token)
            child = self._condition()
            self._depth -= 1
            return Not(child)
        if token.text == "(":
            self._enter(token)
            node = self._either()
            closing = self._peek()
            if closing.text != ")":
                if closing.sort != "end":
                    self._refuse_rest(closing)
                self._refuse(token, "the parenthesis is never closed", "add the closing )")
            self._next()
            self._depth -= 1
            return node
        return self._predicate()

    def _enter(self, token: Token) -> None:
        self._next()
        self._depth += 1
        if self._depth > NESTING_MAX:  # else a text of parentheses would exhaust Python's stack
            raise LimitError(
                f"conditions nest deeper than {NESTING_MAX}",
                "remove parentheses, or split the filter into several subscriptions",
                text=self._text,
                start=token.start,
                end=token.end,
            )

    # -- predicates ------------------------------------------------------------------------------------------------

    def _predicate(self) -> Node:
        token = self._peek()
        if self._at_literal(token):
            return self._flipped(token)
        if token.word in _TEXT_TESTS and self._peek(1).text == "(":
            return self._text_test(token)
        attribute = self._attribute()
        negated = self._take_word("NOT")
        operator = self._peek()
        if operator.text in _COMPARISONS and not negated:
            self._next()
            literal = self._literal(f"after {operator.text}")
            return Compare(attribute, token.start, self._end(), _COMPARISONS[operator.text], literal)
        if operator.word == "BETWEEN":
            return self._between(attribute, token.start, negated)
        if operator.word == "IN":
            return self._in(attribute, token.start, negated)
        if operator.word == "LIKE":
            return self._like(attribute, token.start, negated)
        if operator.word == "IS" and not negated:
            return self._is_null(attribute, token.start)
        if operator.text.upper() in _REFUSED_OPERATORS:
            self._refuse(operator, *_REFUSED_OPERATORS[operator.text.upper()])
        if negated:
            self._refuse(
                operator, "NOT is followed by no operator", "write NOT IN, NOT LIKE, NOT BETWEEN, or NOT first"
            )
        # A condition may be a boolean attribute alone.
        return Compare(attribute, token.start, self._end(), "=", Literal(Kind.BOOLEAN, True, BARE_SLOT))

    def _flipped(self, token: Token) -> Node:
        """Return a predicate that begins with a literal, such as `5 < price`, or a constant TRUE or FALSE."""
        literal = self._literal("here")
        operator = self._peek()
        if operator.text in _COMPARISONS:
            self._next()
            if self._at_literal(self._peek()):
                self._refuse(
                    self._peek(), "both sides are literals", "name an attribute on one side, or write TRUE or FALSE"
                )
            attribute = self._attribute()
            op = _FLIPPED[_COMPARISONS[operator.text]]
            return Compare(attribute, token.start, self._end(), op, literal)
        if literal.kind is Kind.BOOLEAN:
            return Constant(bool(literal.value), token.start, token.end)
        if operator.text.upper() in _REFUSED_OPERATORS:
            self._refuse(operator, *_REFUSED_OPERATORS[operator.text.upper()])
        if operator.word in ("BETWEEN", "IN", "LIKE", "IS", "NOT"):
            self._refuse(operator, f"a literal stands before {operator.word}", "write the attribute first")
        self._refuse(token, "a literal alone is not a condition", "write the attribute first: price > 8.30")

    def _text_test(self, token: Token) -> Node:
        self._next()
        self._next()
        if self._at_literal(self._peek()):
            self._refuse(
                self._peek(), "the first argument is a literal", f"write the attribute first: {token.text}(a, 's')"
            )
        attribute = self._attribute()
        self._expect(",", f"write {token.text}(attribute, 'text')")
        text = self._string(f"{token.text} takes a string")
        self._expect(")", f"write {token.text}(attribute, 'text')")
        return TextTest(attribute, token.start, self._end(), token.word.lower(), text)  # type: ignore[arg-type]

    def _between(self, attribute: str, start: int, negated: bool) -> Node:
        self._next()
        low = self._literal("after BETWEEN")
        if not self._take_word("AND"):
            self._refuse(self._peek(), "BETWEEN has no AND", "write BETWEEN low AND high")
        high_at = self._peek()
        high = self._literal("after AND")
        if low.kind is not high.kind:
            self._refuse(high_at, f"BETWEEN mixes a {low.kind} and a {high.kind}", "write two literals of one kind")
        return Between(attribute, start, self._end(), low, high, negated)

    def _in(self, attribute: str, start: int, negated: bool) -> Node:
        word = self._next()
        self._expect("(", "write IN (value, value, ...)")
        if self._peek().text == ")":
            self._refuse(
                word, "IN () holds no value", "write at least one value, or FALSE for nothing", self._peek().end
            )
        if self._peek().word in ("SELECT", "WITH"):
            self._refuse(self._peek(), "subqueries are not part of a filter", "write the values themselves")
        literals = [self._literal("in the list")]
        while self._take_sign(","):
            token = self._peek()
            literals.append(self._literal("in the list"))
            if literals[-1].kind is not literals[0].kind:
                self._refuse(
                    token, f"IN mixes a {literals[0].kind} and a {literals[-1].kind}", "write values of one kind"
                )
        self._expect(")", "write IN (value, value, ...)")
        return In(attribute, start, self._end(), tuple(literals), negated)

    def _like(self, attribute: str, start: int, negated: bool) -> Node:
        self._next()
        token = self._peek()
        if token.word in ("ANY", "ALL", "SOME"):
            self._refuse(token, f"LIKE {token.word} is not part of a filter", "write several LIKE with OR or AND")
        pattern = self._string("LIKE takes a string")
        escape = None
        if self._take_word("ESCAPE"):
            escape_at = self._peek()
            escape = self._string("ESCAPE takes a string")
            if len(str(escape.value)) != 1:
                self._refuse(
                    escape_at, "ESCAPE takes one character", "write ESCAPE '!' or leave it out for a backslash"
                )
        try:
            check_pattern(str(pattern.value), str(escape.value) if escape else "\\")
        except BadLiteralError as error:
            self._refuse(token, error.problem, error.hint)
        return Like(attribute, start, self._end(), pattern, escape, negated)

    def _is_null(self, attribute: str, start: int) -> Node:
        self._next()
        negated = self._take_word("NOT")
        token = self._peek()
        if token.word == "DISTINCT":
            self._refuse(token, "IS DISTINCT FROM is not part of a filter", "write it with != and IS NULL")
        if token.word in ("TRUE", "FALSE", "UNKNOWN"):
            self._refuse(token, f"IS {token.word} is not part of a filter", "write = TRUE, = FALSE or IS NULL")
        if not self._take_word("NULL"):
            self._refuse(token, "IS is not followed by NULL", "write IS NULL or IS NOT NULL")
        return IsNull(attribute, start, self._end(), negated)

    # -- attributes and literals -----------------------------------------------------------------------------------

    def _attribute(self) -> str:
        start = self._peek().start
        segments = [self._segment()]
        while self._peek().text == ".":
            self._next()
            segments.append(self._segment())
        following = self._peek()
        if following.text == "(":
            first = self._tokens[self._at - 1]
            self._refuse(
                first, f"{first.text}(...) is a function, and functions are not part of a filter", _NO_FUNCTIONS
            )
        if following.sort == "string":
            self._refuse(following, "a string follows a name", "write an operator between them, such as =")
        name = join_name(segments)
        if len(name) > NAME_LENGTH_MAX:
            raise LimitError(
                f"the name of the attribute has {len(name)} characters, and the limit is {NAME_LENGTH_MAX}",
                "publish the attribute under a shorter name",
                text=self._text,
                start=start,
                end=self._end(),
            )
        return name

    def _segment(self) -> str:
        token = self._peek()
        if token.sort == "quoted":
            self._next()
            return token.text[1:-1].replace("``", "`")
        if token.sort != "word":
            self._refuse_operand(token)
        if token.word in RESERVED:
            self._refuse(
                token, f"{token.text} stands where an attribute is expected", f"write `{token.text}` if it is a name"
            )
        following = self._peek(1)
        if token.word == "CASE" and (following.word == "WHEN" or self._peek(2).word == "WHEN"):
            self._refuse(token, "CASE is not part of a filter", "write conditions with AND, OR and NOT")
        if token.word in ("EXISTS", "SELECT") and following.text == "(":
            self._refuse(token, "subqueries are not part of a filter", "write the values themselves")
        self._next()
        return token.text

    def _at_literal(self, token: Token) -> bool:
        """Return whether a literal begins here; TIMESTAMP is one only before a string, else it is a name."""
        if token.sort in ("number", "string") or token.word in ("TRUE", "FALSE", "NULL"):
            return True
        if token.text in ("-", "+"):
            return True
        return token.sort == "word" and self._peek(1).sort == "string"

    def _literal(self, where: str) -> Literal:
        token = self._next()
        if token.sort == "number":
            return self._read(token, Kind.NUMBER)
        if token.text in ("-", "+"):
            number = self._next()
            if number.sort != "number":
                self._refuse(
                    token, f"{token.text} is not followed by a number", "write the sign before a number: -5", number.end
                )
            return self._read(number, Kind.NUMBER, negative=token.text == "-")
        if token.sort == "string":
            literal = self._read(token, Kind.STRING)
            if self._peek().sort == "string":
                self._refuse(self._peek(), "two strings follow each other", "write one string")
            return literal
        if token.word in ("TRUE", "FALSE"):
            return Literal(Kind.BOOLEAN, token.word == "TRUE", BARE_SLOT)
        if token.word == "NULL":
            self._refuse(token, "nothing equals NULL", "write IS NULL or IS NOT NULL")
        if token.sort == "word" and self._peek().sort == "string":
            return self._typed_string(token)
        self._at -= 1
        self._refuse_literal(token, where)

    def _typed_string(self, token: Token) -> Literal:
        string = self._next()
        if token.word == "TIMESTAMP":
            return self._read(string, Kind.TIMESTAMP)
        hints = {
            "DATE": "write TIMESTAMP '2026-01-31 00:00:00'",
            "TIMESTAMP_NTZ": "write TIMESTAMP: without an offset it is UTC",
            "TIMESTAMP_LTZ": "write TIMESTAMP: without an offset it is UTC",
            "R": "write a plain string, each backslash twice",
            "X": "binary values are not part of a filter: write a string",
            "INTERVAL": "intervals are not part of a filter: write the two timestamps",
        }
        self._refuse(
            token,
            f"{token.text} before a string is not a literal here",
            hints.get(token.word, "write the string alone, or an operator between"),
            string.end,
        )

    def _read(self, token: Token, kind: Kind, negative: bool = False) -> Literal:
        slot = self._slots
        self._slots += 1
        try:
            if kind is Kind.NUMBER:
                return Literal(kind, read_number(token.text, negative), slot, negative)
            if kind is Kind.TIMESTAMP:
                return Literal(kind, read_timestamp(token.text), slot)
            return Literal(kind, read_string(token.text), slot)
        except BadLiteralError as error:
            self._refuse(token, error.problem, error.hint)

    def _string(self, problem: str) -> Literal:
        token = self._peek()
        if token.sort != "string":
            self._refuse(token, problem, "write a string in single quotes")
        return self._literal("here")

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token:
        # The end token repeats, so that no look-ahead has to ask whether there is another token.
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._peek()
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take_word(self, word: str) -> bool:
        if self._peek().word == word:
            self._next()
            return True
        return False

    def _take_sign(self, sign: str) -> bool:
        if self._peek().text == sign:
            self._next()
            return True
        return False

    def _expect(self, sign: str, hint: str) -> None:
        token = self._peek()
        if not self._take_sign(sign):
            if token.text.upper() in _REFUSED_OPERATORS:
                self._refuse(token, *_REFUSED_OPERATORS[token.text.upper()])
            self._refuse(token, f"expected {sign} {_found(token)}", hint)

    def _end(self) -> int:
        return self._tokens[self._at - 1].end

    # -- refusals --------------------------------------------------------------------------------------------------

    def _refuse(self, token: Token, problem: str, hint: str, end: int | None = None) -> NoReturn:
        raise FilterError(problem, hint, text=self._text, start=token.start, end=token.end if end is None else end)

    def _refuse_rest(self, token: Token) -> NoReturn:
        """Refuse a token after a complete condition."""
        if token.text == ")":
            self._refuse(token, "the ) closes nothing", "remove it, or add the opening (")
        if token.text.upper() in _REFUSED_OPERATORS:
            self._refuse(token, *_REFUSED_OPERATORS[token.text.upper()])
        if token.word in ("IN", "LIKE", "BETWEEN", "IS", "NOT") or token.text in _COMPARISONS:
            self._refuse(
                token, f"{token.text} follows a complete condition", "compare one attribute with one literal at a time"
            )
        self._refuse(token, f"{token.text!r} follows a complete condition", "write AND or OR between two conditions")

    def _refuse_operand(self, token: Token) -> NoReturn:
        if token.sort == "end":
            self._refuse(token, "the filter ends where an attribute is expected", "complete the condition")
        self._refuse(token, f"expected an attribute {_found(token)}", "write a condition such as price > 8.30")

    def _refuse_literal(self, token: Token, where: str) -> NoReturn:
        if token.sort == "end":
            self._refuse(token, f"the filter ends where a literal is expected {where}", "complete the condition")
        if token.sort in ("word", "quoted"):
            if self._peek(1).text == "(":
                if token.word == "SELECT":
                    self._refuse(token, "subqueries are not part of a filter", "write the values themselves")
                self._refuse(
                    token, f"{token.text}(...) is a function, and functions are not part of a filter", _NO_FUNCTIONS
                )
            name = token.text.strip("`")
            hint = f"write '{name}' in quotes if it is text; two attributes cannot be compared"
            self._refuse(token, f"expected a literal {where} and found the name {token.text}", hint)
        if token.text == "(" and self._peek(1).word == "SELECT":
            self._refuse(token, "subqueries are not part of a filter", "write the values themselves", self._peek(1).end)
        self._refuse(token, f"expected a literal {where} {_found(token)}", "write a number, a 'string', TRUE or FALSE")


def _found(token: Token) -> str:
    return "and the filter ends" if token.sort == "end" else f"and found {token.text}"
