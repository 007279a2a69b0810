"""/openapi.json, made of the table of routes and of the types that read and write the bodies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from meetpoint.gateway.http.errors import ProblemIs
from meetpoint.gateway.http.routes import JSON, Answer, Route

__all__ = ["describe"]

_REF: Final = "#/components/schemas/{name}"
_REFUSALS: Final = {
    400: "The request is not well formed",
    403: "It is not allowed: by the site that asks, the token's rights, or a role",
    408: "The body came too slowly",
    413: "The body is too long",
    415: "The content type is not one of those listed, or the body is compressed",
    421: "The gateway is not known by this name",
    422: "What was sent is well formed, and refused",
    500: "The gateway failed",
    503: "The network could not be reached, or too much is going on; Retry-After says when to try again",
}
_WITH_BODY: Final = (408, 413, 415, 422)


def describe(routes: Sequence[Route], version: str, is_guarded: bool) -> dict[str, Any]:
    """The description of all routes."""
    types: dict[Any, None] = {ProblemIs: None}
    for route in routes:
        types.update(dict.fromkeys(query.type for query in (*route.query, *route.headers)))
        if route.body is not None:
            types.update(dict.fromkeys(route.body.types.values()))
        types.update(dict.fromkeys(each.type for each in route.answers.values() if each.type is not None))
    ordered = list(types)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    found = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_plain(route.path), {})[route.method.lower()] = _operation(route, found, is_guarded)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Meetpoint gateway",
            "version": version,
            "description": "Publish and subscribe by content, over HTTP.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if is_guarded:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return described


def _plain(path: str) -> str:
    """A path without what only the framework understands: `{id:path}` is `{id}`."""
    return re.sub(r"{(\w+):\w+}", r"{\1}", path)


def _operation(route: Route, schemas: dict[Any, Any], is_guarded: bool) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", _plain(route.path))
    ]
    for place, given in (("query", route.query), ("header", route.headers)):
        parameters += [
            {
                "name": each.name,
                "in": place,
                "required": each.required,
                "description": each.description,
                "schema": schemas[each.type],
            }
            for each in given
        ]
    words = re.sub(r"\W+", "_", f"{route.method.lower()}{_plain(route.path)}").strip("_")
    made: dict[str, Any] = {
        "operationId": words,
        "summary": route.summary,
        "responses": _responses(route, schemas, is_guarded),
    }
    if route.description:
        made["description"] = route.description
    if parameters:
        made["parameters"] = parameters
    if route.body is not None:
        content = {media: {"schema": schemas[type_]} for media, type_ in route.body.types.items()}
        made["requestBody"] = {"required": True, "content": content}
    if is_guarded and route.role != "anyone":
        made["security"] = [{"token": []}]
    return made


def _responses(route: Route, schemas: dict[Any, Any], is_guarded: bool) -> dict[str, Any]:
    answers = dict(route.answers)
    for status, words in _REFUSALS.items():
        if status not in answers and (route.body is not None or status not in _WITH_BODY):
            answers[status] = Answer(words, ProblemIs)
    if is_guarded and route.role != "anyone":
        answers.setdefault(401, Answer("A token is missing, or does not count", ProblemIs))
    if "{" in route.path:
        answers.setdefault(404, Answer("There is none of that name", ProblemIs))
    if route.is_stream:
        answers.setdefault(429, Answer("Too many streams are open", ProblemIs))
    return {str(status): _response(status, each, schemas) for status, each in sorted(answers.items())}


def _response(status: int, each: Answer, schemas: dict[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"description": each.description or HTTPStatus(status).phrase}
    if each.type is not None:
        made["content"] = {each.media: {"schema": schemas[each.type]}}
    elif each.media != JSON:
        made["content"] = {each.media: {"schema": {"type": "string"}}}
    return made
