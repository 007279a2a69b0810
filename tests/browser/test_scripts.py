"""The scripts' own sums: values without loss, places in the drawing, the order of a journey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


def run(scripts: Page, module: str, body: str, argument: Any = None) -> Any:
    """What an expression of a script's names gives."""
    names = f"const it = await import('/static/{module}.js');"
    return scripts.evaluate(f"async (given) => {{ {names} return {body} }}", argument)


@pytest.mark.parametrize(
    ("typed", "json", "kind"),
    [
        ("12", "12", "number"),
        ("12345678901234567890123", "12345678901234567890123", "number"),
        ("8.30", "8.30", "number"),
        ("-5", "-5", "number"),
        ("007", '"007"', "text"),
        ("12 Angry Men", '"12 Angry Men"', "text"),
        ("N557UA", '"N557UA"', "text"),
        ("true", "true", "yes/no"),
        ("truth", '"truth"', "text"),
        ('"42"', '"42"', "text"),
        ("null", "null", "null"),
        ('{"price": 8}', '{"price": 8}', "object"),
        ("", '""', "text"),
    ],
)
def test_what_is_typed_becomes_the_value_that_it_looks_like(scripts: Page, typed: str, json: str, kind: str) -> None:
    assert run(scripts, "values", "[it.typed(given).json, it.kindOf(it.typed(given).value)]", typed) == [json, kind]


@pytest.mark.parametrize(
    "json", ["12", '"12"', '"true"', "true", "12345678901234567890123", '"a b"', '{"a":{"b":1}}', '"\\"x"']
)
def test_a_value_put_in_a_field_is_read_back_as_itself(scripts: Page, json: str) -> None:
    assert run(scripts, "values", "it.typed(it.toField(it.exactParse(given))).json", json) == json


@pytest.mark.parametrize(
    ("json", "shown"),
    [
        ("9007199254740993", "9007199254740993"),
        ("0.1", "0.1"),
        ("1.00000000000000000001", "1.00000000000000000001"),
        ("5", "5"),
    ],
)
def test_numbers_are_shown_with_every_digit(scripts: Page, json: str, shown: str) -> None:
    assert run(scripts, "values", "it.show(it.exactParse(given))", json) == shown


def test_brokers_that_lie_close_together_are_drawn_apart_in_their_order(scripts: Page) -> None:
    places = [0.1, 0.1001, 0.1002, 0.5, 0.9999]
    moved = run(scripts, "layouts", "it.spread(given)", places)
    gaps = [after - before for before, after in zip(moved, [*moved[1:], moved[0] + 1], strict=True)]
    assert min(gaps) >= 0.72 / 5 - 1e-3
    assert sum(gaps) == pytest.approx(1)


def test_corners_of_a_cube_that_differ_in_one_bit_are_one_step_apart(scripts: Page) -> None:
    codes = [f"{n:03b}" for n in range(8)]
    brokers = [{"id": code, "place": 0, "regions": [code]} for code in codes]
    at = run(scripts, "layouts", "Object.fromEntries(it.cube(given).at)", brokers)
    steps = {
        (bit, round(at[b]["x"] - at[a]["x"], 3), round(at[b]["y"] - at[a]["y"], 3))
        for a in codes
        for bit in range(3)
        if a[bit] == "0"
        for b in [a[:bit] + "1" + a[bit + 1 :]]
    }
    assert len(steps) == 3
    assert len({(round(point["x"]), round(point["y"])) for point in at.values()}) == 8


def test_a_journey_shows_a_hop_after_whatever_brought_the_event_there(scripts: Page) -> None:
    hops = [
        {"number": 3, "from": "c", "to": "d", "kind": "bring", "ms": 2.5, "parent": 1},
        {"number": 0, "from": "a", "to": "b", "kind": "visit", "ms": 1.0, "parent": None},
        {"number": 1, "from": "a", "to": "c", "kind": "visit", "ms": 1.1, "parent": None},
        {"number": 2, "from": "b", "to": "a", "kind": "bring", "ms": 2.0, "parent": 0},
    ]
    path = {
        "id": "e", "done": True, "hops": hops, "dropped": [],
        "met": [{"broker": "b", "matched": ["x"], "looked_at": 3, "ms": 1.2}],
        "delivered": [{"broker": "a", "name": "x", "ms": 2.2}],
    }  # fmt: skip
    told = run(
        scripts,
        "journey",
        "(() => { const j = new it.Journey(given); return {waves: j.waves, origin: j.origin,"
        " hops: Object.fromEntries(j.hops.map((h) => [h.number, h.wave])),"
        " stops: j.stops.map((s) => [s.kind, s.wave]), at0: [...j.reached('a', 1)], at2: [...j.reached('a', 2)],"
        " text: j.summary().text} })()",
        path,
    )
    assert told["origin"] == "a"
    assert told["hops"] == {"0": 1, "1": 1, "2": 2, "3": 2}
    assert told["stops"] == [["met", 1], ["delivered", 2]]
    assert (told["at0"], told["at2"]) == ([], ["x"])
    assert told["text"].startswith("Met 1 subscription within 2.2 ms, with 4 messages.")


def test_names_in_a_filter_are_not_its_words_texts_numbers_or_functions(scripts: Page) -> None:
    text = "carrier = 'UA and B6' AND NOT (`unit price` > 5e3 OR order.total IS NULL) AND startswith(dest, 'S')"
    assert set(run(scripts, "filters", "[...it.namesIn(given)]", text)) == {"carrier", "unit price", "order", "dest"}


def test_a_network_is_whole_only_when_links_lead_to_the_next_that_serves(scripts: Page) -> None:
    def network(links: dict[str, str], silent: str = "") -> dict[str, Any]:
        return {
            "brokers": [
                {"id": id_, "state": "silent" if id_ == silent else "ready", "links": [{"to": to, "kind": "successor"}]}
                for id_, to in links.items()
            ]
        }

    whole = "it.health(given).isWhole"
    assert run(scripts, "world", whole, network({"a": "b", "b": "c", "c": "a"}))
    assert not run(scripts, "world", whole, network({"a": "c", "b": "c", "c": "a"}))
    assert not run(scripts, "world", whole, network({"a": "b", "b": "c", "c": "a"}, silent="b"))
    assert run(scripts, "world", whole, network({"a": "c", "b": "c", "c": "a"}, silent="b"))


def test_brokers_without_a_region_stand_around_the_cube(scripts: Page) -> None:
    brokers = [{"id": f"{n}", "place": n / 7, "regions": [f"{n:b}"] if n < 2 else []} for n in range(7)]
    at = run(scripts, "layouts", "Object.fromEntries(it.cube(given).at)", brokers)
    assert len({(round(point["x"]), round(point["y"])) for point in at.values()}) == 7
    centre = run(scripts, "layouts", "it.CENTRE")
    far = {id_: abs(complex(p["x"] - centre["x"], p["y"] - centre["y"])) for id_, p in at.items()}
    assert max(far["0"], far["1"]) < min(far[f"{n}"] for n in range(2, 7))


def test_what_was_tried_again_and_again_is_one_step_of_a_journey(scripts: Page) -> None:
    lost = [{"broker": "b", "why": "no answer", "ms": ms} for ms in (5, 1000, 2000)]
    path = {
        "id": "e",
        "at": "a",
        "done": False,
        "hops": [],
        "dropped": [*lost, {"broker": "c", "why": "none", "ms": 6}],
    }
    seen = run(
        scripts, "journey", "new it.Journey(given).stops.map((each) => [each.broker, each.ms, each.times])", path
    )
    assert seen == [["b", 5, 3], ["c", 6, 1]]
