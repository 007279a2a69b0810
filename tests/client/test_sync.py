"""The client without asyncio: in a script, in a thread, and where another loop runs."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import pydoc
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import meetpoint as mp
from meetpoint.client import Delivery, Network, Subscription
from meetpoint.client.sync import SyncDelivery, SyncNetwork, SyncSubscription
from meetpoint.errors import EventError, FilterError
from meetpoint.local_network import Local
from tests.client.running import PATIENCE_S

SCRIPT = """
import sys
import meetpoint as mp

with mp.connect_sync(sys.argv[1], client="script") as net:
    sub = net.subscribe("price > 120 AND k = 'script'", durable="script")
    net.publish({"price": 120, "k": "script"})
    net.publish_many({"price": price, "k": "script"} for price in (121, 122))
    for event in sub.events(timeout=30):
        print(event["price"], event.matched_by, event.redelivered)
        event.ack()
        if event["price"] == 122:
            break
    sub.unsubscribe()
"""


def test_a_plain_script(in_thread: Local) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT, in_thread.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "121 ('script',) False\n122 ('script',) False\n"


def test_a_script_that_does_not_close_ends_all_the_same(in_thread: Local) -> None:
    code = "import sys, meetpoint as mp; net = mp.connect_sync(sys.argv[1]); net.subscribe('n = 1'); print('end')"
    command = [sys.executable, "-c", code, in_thread.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.returncode) == ("end\n", 0)


def test_the_whole_face(in_thread: Local) -> None:
    with in_thread.connect_sync("sync-ann") as net:
        assert net.client == "sync-ann"
        assert net.broker is not None
        with pytest.raises(FilterError):
            net.subscribe("n >")
        with pytest.raises(EventError):
            net.publish({"n": object()})
        with pytest.raises(EventError):
            net.publish_many([{"n": 1}, {"n": object()}])
        sub = net.subscribe("k = 'face' AND n > 1", durable="face", labels={"team": "sync"}, ack="manual")
        assert (sub.name, sub.filter, sub.ended, sub.dropped) == ("face", "k = 'face' AND n > 1", None, 0)
        assert [held.name for held in net.subscriptions("sync-ann", {"team": "sync"})] == ["face"]
        sub.update("k = 'face'")
        sub.pause()
        sub.resume()
        event = net.event({"k": "face", "n": 1})
        event_id = net.publish(event)
        (came,) = _first(sub.events(timeout=PATIENCE_S), 1)
        assert (came.event, came.id, came.key, came["n"], came.get("n")) == (event, event_id, event_id.key, 1, 1)
        assert (came.publisher, came.sequence, came.time) == (net.publisher, event.sequence, event.time)
        assert (came.attributes, came.matched_by, came.redelivered) == ({"k": "face", "n": 1}, ("face",), False)
        assert net.explain("n = 2", came).reason == "n 1 is below 2"
        came.nack("not yet")
        (again,) = _first(sub.events(timeout=PATIENCE_S), 1)
        assert (again.id, again.redelivered) == (event.id, True)
        again.ack()
        assert net.locate("face").host is not None
        assert net.dead_letters("face") == []
        assert len(net.brokers()) == 3
        assert len(net.status()) == 3
        assert net.schema() is None
        assert net.journal(event.id)[0].step == "published"
        assert list(sub.events(timeout=0.1)) == []
        sub.unsubscribe()
        assert list(sub) == []
        with net.subscribe("k = 'face'") as passing:
            net.publish({"k": "face", "n": 2})
            assert [event["n"] for event in _first(passing.events(timeout=PATIENCE_S), 1)] == [2]
        assert passing.ended == "it was closed"
    net.close()
    with pytest.raises(mp.NetworkError, match="closed; connect again"):
        net.publish({"n": 1})


def test_inside_a_running_loop_as_in_a_notebook(in_thread: Local) -> None:
    async def cell() -> object:
        with in_thread.connect_sync() as net:
            sub = net.subscribe("k = 'notebook'")
            net.publish({"k": "notebook", "n": 5})
            return next(iter(sub.events(timeout=PATIENCE_S)))["n"]

    assert asyncio.run(cell()) == 5


@pytest.mark.slow
def test_many_from_a_source_that_blocks(in_thread: Local) -> None:
    """The source is read in the caller's thread: while it waits, events still come."""
    with in_thread.connect_sync() as net:
        sub = net.subscribe("k = 'blocks'")
        came = threading.Event()
        threads = set()

        def source() -> Iterator[dict[str, object]]:
            threads.add(threading.current_thread())
            yield {"k": "blocks", "n": 1}
            assert came.wait(PATIENCE_S)
            yield {"k": "blocks", "n": 2}

        def read() -> None:
            _first(sub.events(timeout=PATIENCE_S), 1)
            came.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert [str(id_) for id_ in net.publish_many(source())] == [f"{net.publisher}/{n}" for n in (1, 2)]
        reader.join()
        assert threads == {threading.current_thread()}
        ids = net.publish_many({"k": "many"} for _ in range(3_000))
        assert ids == [f"{net.publisher}/{n}" for n in range(3, 3_003)]


def test_a_wait_that_is_interrupted_leaves_the_client_usable(in_thread: Local) -> None:
    with in_thread.connect_sync() as net:
        sub = net.subscribe("k = 'interrupted'")
        assert list(sub.events(timeout=0.05)) == []
        net.publish({"k": "interrupted"})
        assert len(_first(sub.events(timeout=PATIENCE_S), 1)) == 1


def test_where_nobody_listens() -> None:
    with pytest.raises(mp.NetworkError, match=r"nothing listens at 127\.0\.0\.1:1; start one with: meetpoint up"):
        mp.connect_sync("mp://127.0.0.1:1")


def _first(events: object, count: int) -> list[SyncDelivery]:
    found: list[SyncDelivery] = []
    for event in events:  # type: ignore[attr-defined]
        found.append(event)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} events came")


def test_each_method_is_that_of_the_asynchronous_client() -> None:
    """With its parameters and its docstring: `help` shows them."""
    for ours, theirs in ((SyncNetwork, Network), (SyncSubscription, Subscription), (SyncDelivery, Delivery)):
        for name, method in vars(ours).items():
            if not name.startswith("_") and inspect.isfunction(method):
                signature, expected = inspect.signature(method), inspect.signature(getattr(theirs, name))
                assert [*signature.parameters.values()] == [*expected.parameters.values()] or name == "publish_many"
                assert method.__doc__
    assert str(inspect.signature(SyncNetwork.publish)).endswith("-> 'EventId'")
    assert str(inspect.signature(SyncNetwork.subscribe)).endswith("-> 'SyncSubscription'")
    assert "Raises EventError" in pydoc.render_doc(SyncNetwork.publish)


def test_what_is_printed_of_it_says_that_it_waits(in_thread: Local) -> None:
    with in_thread.connect_sync("sync-ann") as net, net.subscribe("k = 'shown'") as sub:
        assert repr(net).startswith(f"<SyncNetwork {in_thread.url} connected to ")
        event_id = net.publish({"k": "shown"})
        (event,) = _first(sub.events(timeout=PATIENCE_S), 1)
        assert repr(sub).startswith(f"<SyncSubscription '{sub.name}' ephemeral attached at ")
        assert repr(event) == f"<SyncDelivery {event_id} {{'k': 'shown'}} matched_by={sub.name}>"
    assert repr(net).startswith(f"<SyncNetwork {in_thread.url} closed ")


def test_the_examples_in_docstrings_are_true() -> None:
    """Those of the synchronous client are those of the asynchronous one, without its words."""
    with mp.local(brokers=1) as here, here.connect_sync("ann") as net:
        sub = net.subscribe("price > 120", durable="alerts")
        net.publish({"order": {"price": 121}, "price": 121})
        (event,) = _first(sub.events(timeout=PATIENCE_S), 1)
        net.publish({"price": 122})
        names = {"Network": Network, "net": net, "sub": sub, "subscription": sub, "event": event}
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        for kind in (SyncDelivery, SyncSubscription, SyncNetwork):
            for name in sorted(dir(kind), key=lambda name: (name in ("declare", "unsubscribe"), name)):
                text = (getattr(kind, name).__doc__ or "").replace("  # doctest: +SKIP", "")
                if not name.startswith("_") and ">>>" in text:
                    example = doctest.DocTestParser().get_doctest(
                        text, names.copy(), f"{kind.__name__}.{name}", None, 0
                    )
                    runner.run(example)
        assert runner.summarize(verbose=False) == (0, runner.tries)
        assert runner.tries > 15
