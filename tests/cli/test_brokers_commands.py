"""sub, pub, subs, dead, top, why and schema on a network in this process, with bad input, and where nobody is there."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import meetpoint as mp
from meetpoint.local_network import Local
from meetpoint.node.settings import NodeSettings
from tests.cli.conftest import Command, Ran

COMMAND = [sys.executable, "-m", "meetpoint.cli"]
PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def here() -> Iterator[Local]:
    with mp.local(brokers=3, scheme="flood") as network:
        yield network


@pytest.fixture
def at(here: Local, meetpoint: Command) -> Command:
    """Run a command against the network."""

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        return meetpoint(*arguments, "--at", here.url, stdin=stdin)

    return run


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.02)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def published(ran: Ran) -> str:
    """Return the output of `pub` without the rate that it adds when publishing took a second or longer."""
    return ran.out.rstrip("\n").partition(",")[0]


# -- sub and pub -------------------------------------------------------------------------------------------------------


def test_an_event_is_published_read_and_explained(at: Command) -> None:
    assert at("sub", "price > 120", "--durable", "one", "--timeout", "0.05").code == 0
    published = at("pub", '{"symbol": "OTE", "price": 121.5}')
    assert published.code == 0
    (id_,) = published.out.splitlines()
    until(lambda: at("why", id_, "one").out.startswith("…"))
    assert at("why", id_, "one").code == 0
    read = at("sub", "price > 120", "--durable", "one", "--count", "1")
    assert read.code == 0
    (event,) = lines(read.out)
    assert (event["id"], event["attributes"], event["matched_by"]) == (id_, {"symbol": "OTE", "price": 121.5}, ["one"])
    until(lambda: json.loads(at("why", id_, "one", "--json").out)["verdict"] == "delivered")
    low = at("pub", '{"symbol": "OTE", "price": 100}').out.strip()
    told = at("why", low, "one")
    assert told.out.startswith("✗ the filter of one does not accept it: price 100 is below 120\n")
    assert at("subs", "end", "one").out == "one has ended\n"
    assert at("why", low, "one").out.startswith("✗ there is no subscription one")
    assert at("why", "nope", "one").code == 1


def test_a_subscription_of_another_filter_is_replaced_only_where_that_is_said(at: Command) -> None:
    assert at("sub", "a > 1", "--durable", "two", "--timeout", "0.05").code == 0
    refused = at("sub", "a > 2", "--durable", "two", "--timeout", "0.05")
    assert (refused.code, refused.out) == (2, "")
    assert "say --replace" in refused.err
    assert at("sub", "a > 2", "--durable", "two", "--timeout", "0.05", "--replace").code == 0
    assert {held["name"]: held["filter"] for held in _listed(at)}["two"] == "a > 2"
    assert at("subs", "end", "two").code == 0


def _listed(at: Command, *options: str) -> list[dict[str, str]]:
    return json.loads(at("subs", "list", "--json", *options).out)["subscriptions"]  # type: ignore[no-any-return]


def test_sub_that_gets_too_few_says_so(at: Command) -> None:
    ran = at("sub", "a = 'never'", "--count", "3", "--timeout", "0.05")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "meetpoint: 0 of 3 events came before 0.05 s without one were over\n"


def test_sub_prints_as_events_come_and_ends_with_ctrl_c(here: Local, at: Command) -> None:
    command = [*COMMAND, "sub", "live", "--attributes", "--at", here.url]
    heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # programs in the background ignore it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed) as process:
        assert process.stdout is not None
        until(lambda: any(held["filter"] == "live" for held in _listed(at)))
        for number in range(3):
            assert at("pub", json.dumps({"live": True, "n": number})).code == 0
            assert json.loads(process.stdout.readline()) == {"live": True, "n": number}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, b"", b"")
    until(lambda: not any(held["filter"] == "live" for held in _listed(at)))


def test_sub_whose_reader_goes_away_ends_quietly(here: Local, at: Command) -> None:
    command = [*COMMAND, "sub", "gone", "--at", here.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        until(lambda: any(held["filter"] == "gone" for held in _listed(at)))
        process.stdout.close()
        assert at("pub", '{"gone": true}').code == 0
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0


def test_files_are_published_in_order_and_bad_lines_set_aside(at: Command, tmp_path: Path) -> None:
    assert at("sub", "run = 7", "--durable", "seven", "--timeout", "0.05").code == 0
    file, aside = tmp_path / "events.jsonl", tmp_path / "bad.jsonl"
    file.write_text("".join(f'{{"run": 7, "n": {n}}}\n' for n in range(300)) + '{"run": \n{"run": [7]}\n')
    ran = at("pub", file, "--rejects", aside)
    assert (ran.code, published(ran)) == (1, "300 events published")
    assert [(row["row"], row["raw"]) for row in lines(aside.read_text())] == [(300, '{"run": '), (301, '{"run": [7]}')]
    table = tmp_path / "events.csv"
    table.write_text("run,n\n7,300\n7,\n")
    assert published(at("pub", table)) == "2 events published"
    told = json.loads(at("pub", "-", "--json", stdin=b'{"run": 7, "n": 302}\n').out)
    assert (told["published"], told["refused"]) == (1, 0)
    read = lines(at("sub", "run = 7", "--durable", "seven", "--count", "303", "--attributes").out)
    assert [event.get("n") for event in read] == [*range(301), None, 302]
    assert at("subs", "end", "seven").code == 0


def test_an_id_of_an_event_is_told_once(at: Command, tmp_path: Path) -> None:
    assert at("sub", "TRUE", "--durable", "ids", "--timeout", "0.05").code == 0
    for _ in range(2):
        assert at("pub", '{"order": 71}', "--event-id", "order").out == "71\n"
    assert at("pub", '{"order": 72}', "--event-id", "order").out == "72\n"
    read = lines(at("sub", "TRUE", "--durable", "ids", "--count", "2").out)
    assert [event["id"] for event in read] == ["71", "72"], "the first once"
    file = tmp_path / "events.jsonl"
    file.write_text('{"order": "x"}\n{"other": 1}\n{"order": true}\n')
    ran = at("pub", file, "--event-id", "order")
    assert (ran.code, published(ran)) == (1, "1 event published")
    assert "its id order is missing" in ran.err
    assert at("subs", "end", "ids").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pub", '{"a": }'], "is not JSON"),
        (["pub", '{"a": [1]}'], "attribute a is a list"),
        (["pub", "hello"], "'hello' is neither a JSON object nor a file"),
        (["pub", ""], "'' is neither a JSON object nor a file"),
        (["pub", "nope.jsonl"], "nope.jsonl: no such file or directory; check the path"),
        (["sub", "price >"], "filter, column 8: the filter ends"),
        (["sub", "a", "--replace"], "only a subscription with a name can be replaced"),
        (["sub", "a", "--label", "x"], "'x' is no setting; write KEY=VALUE."),
        (["subs", "export", "--out", "subs.csv"], "name the file .jsonl"),
        (["subs", "import", "nope.jsonl"], "no such file or directory"),
        (["subs", "end", "nope"], "there is no subscription nope"),
        (["dead", "discard", "nope"], "nope has no dead letters"),
        (["schema", "add", "nope.yaml"], "nope.yaml"),
    ],
)
def test_bad_input_is_one_line(at: Command, arguments: list[str], message: str) -> None:
    ran = at(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.startswith("meetpoint: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sub", "a > 1"], ["pub", '{"a": 1}'], ["top", "--once"], ["why", "e", "s"], ["subs", "list"],
        ["subs", "export"], ["subs", "end", "x"], ["dead", "list"], ["dead", "discard", "x"], ["schema", "show"],
    ],
)  # fmt: skip
def test_nobody_there_is_one_line(meetpoint: Command, arguments: list[str]) -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = meetpoint(*arguments, "--at", f"mp://{address}")
    assert ran == (2, "", f"meetpoint: nothing listens at {address}; start one with: meetpoint up\n")


def test_a_url_that_is_none(meetpoint: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEETPOINT_AT", "http://localhost")
    ran = meetpoint("top", "--once")
    assert ran.code == 2
    assert ran.err.startswith("meetpoint: url 'http://localhost': begins with http://; write mp://")


# -- subs --------------------------------------------------------------------------------------------------------------

ROWS = [
    {"name": "ann", "filter": "price > 5", "owner": "ann", "labels": {"team": "night"}},
    {"name": "bob", "filter": "price > 6", "paused": True},
    {"id": 7, "filter": "TRUE"},
]
WRONG = [
    ({"filter": "TRUE"}, "has no name"),
    ({"name": "x"}, "x: the subscription has no filter"),
    ({"name": "x", "filter": "a >"}, "filter, column 4"),
    ({"name": "ann", "filter": "a"}, "ann: occurs a second time"),
    ({"name": "x", "filter": "a", "durable": False}, "x: is not durable"),
    ({"name": "x", "filter": "a", "labels": {"n": 1}}, "x: its labels are no object of strings"),
    ({"name": "x", "filter": "a", "lifetime_s": -1}, "x: its lifetime_s"),
]


def test_subscriptions_go_out_and_come_back(at: Command, tmp_path: Path) -> None:
    file, aside, out = tmp_path / "subs.jsonl", tmp_path / "bad.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, *(row for row, _ in WRONG)]))
    ran = at("subs", "import", file, "--rejects", aside)
    assert (ran.code, ran.out) == (1, "3 new, 0 changed, 0 same, 7 refused\n")
    for row, (_, reason) in zip(lines(aside.read_text()), WRONG, strict=True):
        assert reason in str(row["reason"])
    hosts = {row["broker"] for row in _listed(at)}
    assert len(hosts) == 3  # they are spread over the brokers

    assert at("subs", "export", "--out", out) == (0, "", "")
    expected = [
        {"name": "7", "filter": "TRUE", "owner": "", "labels": {}, "durable": True},
        {"name": "ann", "filter": "price > 5", "owner": "ann", "labels": {"team": "night"}, "durable": True},
        {"name": "bob", "filter": "price > 6", "owner": "", "labels": {}, "paused": True, "durable": True},
    ]
    assert lines(out.read_text()) == expected
    assert lines(at("subs", "export").out) == expected
    assert at("subs", "import", out) == (0, "0 new, 0 changed, 3 same, 0 refused\n", "")

    changed = [expected[0], {**expected[1], "filter": "price > 9", "labels": {}}, {**expected[2], "paused": False}]
    stream = "".join(json.dumps(row) + "\n" for row in changed).encode()
    assert json.loads(at("subs", "import", "-", "--json", stdin=stream).out) == {
        "new": 0, "changed": 2, "same": 1, "refused": 0,
    }  # fmt: skip
    other = json.dumps({**changed[1], "owner": "eve"}).encode()
    ran = at("subs", "import", "-", stdin=other)
    assert (ran.code, ran.out) == (1, "0 new, 0 changed, 0 same, 1 refused\n")
    assert "ann: its owner is 'ann' there" in ran.err
    assert [row["name"] for row in _listed(at, "--owner", "ann")] == ["ann"]
    assert [row["name"] for row in _listed(at, "--label", "team=night")] == []
    assert "ann   127.0.0.1:" in at("subs", "list").out
    odd = json.dumps({"name": "\x1b[2Jred\n", "filter": "price > 3", "owner": "\x9b31m"}).encode()
    assert at("subs", "import", "-", stdin=odd).code == 0
    told = at("subs", "list").out
    assert r"\x1b[2Jred\n" in told
    assert {"\x1b", "\x9b"}.isdisjoint(told), "a name spoke to the terminal"
    assert at("subs", "end", "\x1b[2Jred\n").code == 0

    table = tmp_path / "alerts.csv"
    table.write_text("id,filter,subscriber\n007,price > 3,cem\n")
    assert at("subs", "import", table).out == "1 new, 0 changed, 0 same, 0 refused\n"
    assert [(row["name"], row["owner"]) for row in _listed(at, "--owner", "cem")] == [("007", "cem")]
    for name in ("7", "ann", "bob", "007"):
        assert at("subs", "end", name).code == 0
    assert at("subs", "list") == (0, "0 subscriptions\n", "")


# -- top, dead letters, schema -----------------------------------------------------------------------------------------


def test_top_shows_every_broker(here: Local, at: Command) -> None:
    until(lambda: _states(at) == [("ready", 1)] * 3)  # once brokers have seen that earlier commands are gone
    ran = at("top", "--once", "--interval", "0.1")
    assert (ran.code, ran.err) == (0, "")
    head, *rows, total = ran.out.splitlines()
    assert head.split() == [
        "broker",
        "state",
        "subs",
        "in/s",
        "out/s",
        "queued",
        "outbox",
        "dead",
        "store",
        "ms",
        "clients",
    ]
    assert {row.split()[0] for row in rows} == set(here.addresses)
    assert total.split()[:4] == ["all", "3", "of", "3"]


def _states(at: Command) -> list[tuple[str, int]]:
    told = json.loads(at("top", "--once", "--interval", "0.1", "--json").out)["brokers"]
    return [(row["state"], row["connections"]) for row in told]


def test_dead_letters_are_listed_and_forgotten(at: Command, meetpoint: Command) -> None:
    assert at("dead", "list") == (0, "0 dead letters\n", "")
    assert at("dead", "list", "--json") == (0, "", "")
    with mp.local(brokers=1, scheme="flood", node=NodeSettings(retries_us=())) as one:
        with one.connect_sync("ann") as net, net.subscribe("price > 1", durable="alerts", ack="manual") as alerts:
            for price in (5, 6):
                net.publish({"price": price}, id=f"e{price}")
            for event in alerts.events(timeout=PATIENCE_S):
                event.nack(f"no room for {event['price']}")
                if event.id == "e6":
                    break
            until(lambda: len(net.dead_letters("alerts")) == 2)
        shown = meetpoint("dead", "list", "--at", one.url)
        assert (shown.code, shown.err) == (0, "")
        assert "alerts        e5     " in shown.out
        assert shown.out.endswith("2 dead letters\n")
        first, second = lines(meetpoint("dead", "list", "alerts", "--json", "--at", one.url).out)
        assert (first["subscriptions"], second["subscriptions"]) == (["alerts"], ["alerts"])
        assert "no room for 5" in str(first["reason"])
        assert first["event"]["attributes"] == {"price": 5}  # type: ignore[index]
        why = json.loads(meetpoint("why", "e5", "alerts", "--json", "--at", one.url).out)
        assert why["verdict"] == "dead"
        assert "no room for 5" in why["headline"]
        discarded = meetpoint("dead", "discard", "alerts", "--event", "e5", "--at", one.url)
        assert discarded == (0, "1 dead letter of alerts forgotten\n", "")
        assert meetpoint("dead", "discard", "alerts", "--event", "e5", "--at", one.url).code == 2
        assert meetpoint("dead", "discard", "alerts", "--at", one.url).code == 0
        assert meetpoint("dead", "list", "--at", one.url).out == "0 dead letters\n"


class OneTry:
    """A backoff after which the time is over."""

    async def wait(self) -> None:
        raise TimeoutError


def test_a_broker_that_is_gone_is_named(meetpoint: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with mp.local(brokers=2, scheme="flood") as two:
        url, gone = two.url_of(0), two.addresses[1]
        two.stop_broker(1)
        told = json.loads(meetpoint("top", "--once", "--interval", "0.1", "--json", "--at", url).out)["brokers"]
        assert {row["broker"]: row["state"] for row in told}[gone] == "silent"
        until(lambda: "1 of 2" in meetpoint("top", "--once", "--interval", "0.1", "--at", url).out)
        listed = meetpoint("subs", "list", "--at", url)
        assert (listed.code, listed.out) == (1, "0 subscriptions\n")
        assert gone in listed.err
        for arguments in (["subs", "export"], ["subs", "import", "-"], ["dead", "list"]):
            with monkeypatch.context() as patched:
                patched.setattr("meetpoint.client.admin_queries.Backoff", OneTry)  # else asked again for half a minute
                refused = meetpoint(*arguments, "--at", url)
            assert (refused.code, refused.out) == (2, "")
            assert gone in refused.err
        why = meetpoint("why", "e", "s", "--at", url)
        assert why.code == 1
        assert f"not known: nothing listens at {gone}" in why.out


def test_a_schema_reaches_a_network_that_runs(meetpoint: Command, tmp_path: Path) -> None:
    first, other, clash = (tmp_path / name for name in ("first.yaml", "other.yaml", "clash.yaml"))
    first.write_text("attributes: {price: decimal, symbol: string}")
    other.write_text("attributes: {volume: integer}")
    clash.write_text("attributes: {price: string}")
    with mp.local(brokers=2, scheme="flood") as two:
        one, another = (["--at", two.url_of(number)] for number in range(2))
        none = meetpoint("schema", "show", *one)
        assert (none.code, none.out) == (0, "")
        assert "the network has no schema" in none.err
        assert meetpoint("schema", "add", first, *one) == (0, "2 attributes added, 2 in all\n", "")
        until(lambda: "symbol: string" in meetpoint("schema", "show", *another).out)
        assert meetpoint("schema", "add", other, *another).out == "1 attribute added, 3 in all\n"
        refused = meetpoint("schema", "add", clash, *another)
        assert (refused.code, refused.out) == (2, "")
        assert "the type of price changes from decimal to string" in refused.err
        typed = meetpoint("sub", "price = 'x'", *one)
        assert typed.code == 2
        assert "price is of type decimal and is compared with a string" in typed.err
        near = meetpoint("pub", '{"symbl": "OTE"}', *one)
        assert near.code == 2
        assert "did you mean symbol?" in near.err
        stream = b'{"price": 5.10}\n{"price": "x"}\n{"symbl": "OTE"}\n'
        mixed = meetpoint("pub", "-", *one, stdin=stream)
        assert (mixed.code, published(mixed)) == (1, "1 event published")
        assert mixed.err.startswith("meetpoint: 2 rows were set aside")
