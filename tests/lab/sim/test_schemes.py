"""A scheme and its options in one word: what it chooses, and how mistakes are refused."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
import pytest

from meetpoint.catalog import SCHEMES, NetworkConfig
from meetpoint.catalog.catalog import network_config, read_options, read_scheme
from meetpoint.errors import SetupError

Hash: TypeAlias = Literal["plain", "order"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Such as a scheme may have."""

    mode: Literal["coordinated", "distributed", "hybrid"] = "hybrid"
    hash: Hash = "order"
    printed: bool = False
    points_max: int = 64


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ([], Settings()),
        (["coordinated"], Settings(mode="coordinated")),
        (["distributed", "plain"], Settings(mode="distributed", hash="plain")),
        (["plain", "distributed"], Settings(mode="distributed", hash="plain")),
        (["printed"], Settings(printed=True)),
        (["order", "printed", "coordinated"], Settings(mode="coordinated", hash="order", printed=True)),
    ],
)
def test_words_choose_settings_in_any_order(words: list[str], settings: Settings) -> None:
    assert read_options("lists", words, Settings) == settings


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["hybird"],
            "scheme lists: there is no 'hybird'; "
            "choose from mode: coordinated, distributed, hybrid; hash: plain, order; printed: printed",
        ),
        (["points_max"], "scheme lists: there is no 'points_max'; choose from mode: "),
        ([""], "scheme lists: there is no ''; choose from mode: "),
        (["coordinated", "hybrid"], "scheme lists: coordinated and hybrid are both its mode; say one of them"),
        (["printed", "printed"], "scheme lists: printed and printed are both its printed; say one of them"),
    ],
)
def test_a_wrong_word_is_refused_with_the_choice(words: list[str], message: str) -> None:
    with pytest.raises(SetupError) as refused:
        read_options("lists", words, Settings)
    assert str(refused.value).startswith(message)


def test_settings_without_a_choice_say_so() -> None:
    with pytest.raises(SetupError, match="scheme meet has no options: say meet instead of meet:fast"):
        read_scheme("meet:fast")


def test_every_scheme_can_be_said_by_its_name() -> None:
    for name in SCHEMES:
        assert read_scheme(name) == {"scheme": name}
        assert network_config("chord", name) == NetworkConfig(scheme=name)


def test_what_there_is_not_is_refused_by_name() -> None:
    for text in ("food", "food:hybrid", ""):
        with pytest.raises(SetupError, match=f"scheme: there is no '{text.split(':')[0]}'; choose from: flood"):
            network_config("chord", text)
    with pytest.raises(SetupError, match="scheme flood has no options: say flood instead of flood:fast"):
        network_config("chord", "flood:fast")
    with pytest.raises(SetupError, match="overlay: there is no 'cord'"):
        network_config("cord", "flood")
