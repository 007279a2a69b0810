"""What a schema says against a filter: no implicit casts, so a constraint's kind must be its attribute's kind."""

from __future__ import annotations

from meetpoint.errors import FilterError
from meetpoint.language.names import TENANT, join_name
from meetpoint.language.schema.schema import Schema
from meetpoint.language.syntax.tree import IsNull, Node, Predicate, kind_compared, predicates
from meetpoint.language.values import Kind

__all__ = ["check_kinds"]

_TENANT = join_name((TENANT,))
_HINTS = {
    Kind.NUMBER: "write a number, without quotes",
    Kind.STRING: "write a string in single quotes",
    Kind.BOOLEAN: "write TRUE or FALSE",
    Kind.TIMESTAMP: "write TIMESTAMP '2026-01-31 12:00:00'",
}


def check_kinds(tree: Node, schema: Schema, text: str) -> None:
    """Refuse the first predicate whose attribute the schema lacks or declares of another kind."""
    for predicate in predicates(tree):
        name = predicate.attribute
        if name == _TENANT:
            continue
        if name not in schema:
            _check_unknown(predicate, schema, text)
            continue
        compared = kind_compared(predicate)
        declared = schema[name].type
        if compared is not None and compared is not declared.kind:
            raise FilterError(
                f"{name} is of type {declared} and is compared with a {compared}",
                _HINTS[declared.kind],
                text=text,
                start=predicate.start,
                end=predicate.end,
            )


def _check_unknown(predicate: Predicate, schema: Schema, text: str) -> None:
    name = predicate.attribute
    if any(known.startswith(name + ".") for known in schema.names):
        if isinstance(predicate, IsNull):
            return
        problem = f"{name} is an object"
        hint = "name one of its attributes: " + ", ".join(n for n in schema.names if n.startswith(name + "."))
    else:
        problem = f"the schema has no attribute {name}"
        guess = schema.suggest(name)
        hint = f"did you mean {guess}?" if guess else "its attributes are " + ", ".join(schema.names)
    raise FilterError(problem, hint, text=text, start=predicate.start, end=predicate.end)
