"""A scheme and its options in one word, as a command line says it: `flood`, `lists:hybrid:order`, `lists:printed`.

The words after the scheme's name choose among its settings: those of `NetworkConfig` in the field of the same name. A
setting that is one of a few words (a `Literal`) is chosen by its word, one that is true or false is made true by its
own name. So a scheme's options are its settings, and nothing here knows any of them. Other settings have no word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec

from meetpoint.catalog.catalog import SCHEMES, NetworkConfig
from meetpoint.errors import SetupError

__all__ = ["network_config", "read_options", "read_scheme"]


def network_config(overlay: str, scheme: str) -> NetworkConfig:
    """The network of an overlay and a scheme in one word."""
    return NetworkConfig(overlay=overlay, **read_scheme(scheme))


def read_scheme(text: str) -> dict[str, Any]:
    """What a scheme in one word says of a `NetworkConfig`."""
    name, *words = text.split(":")
    said: dict[str, Any] = {"scheme": name}
    if words and name in SCHEMES:  # else the configuration itself says which there are
        settings = [field.type for field in msgspec.structs.fields(NetworkConfig) if field.name == name]
        if not settings or not any(_choices(settings[0])):
            raise SetupError(f"scheme {name} has no options: say {name} instead of {text}")
        said[name] = read_options(name, words, settings[0])
    return said


def read_options(name: str, words: list[str], settings: type[msgspec.Struct]) -> msgspec.Struct:
    """Settings of a scheme as words choose them, the others as they are by default."""
    choices = dict(_choices(settings))
    chosen: dict[str, Any] = {}
    said: dict[str, str] = {}
    for word in words:
        for field, values in choices.items():
            if word not in values:
                continue
            if field in chosen:
                raise SetupError(f"scheme {name}: {said[field]} and {word} are both its {field}; say one of them")
            chosen[field], said[field] = values[word], word
            break
        else:
            told = "; ".join(f"{field}: {', '.join(values)}" for field, values in choices.items())
            raise SetupError(f"scheme {name}: there is no {word!r}; choose from {told}")
    return settings(**chosen)


def _choices(settings: type[msgspec.Struct]) -> Iterator[tuple[str, dict[str, Any]]]:
    """By field, the words that choose something for it, and what they choose."""
    for field in msgspec.structs.fields(settings):
        if get_origin(field.type) is Literal:
            yield field.name, {str(word): word for word in get_args(field.type)}
        elif field.type is bool:
            yield field.name, {field.name: True}
