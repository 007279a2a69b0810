"""Brokers that would miss each other's matches are told so before they begin."""

from __future__ import annotations

import msgspec
import pytest

from meetpoint.broker.config import BrokerError
from meetpoint.catalog import OVERLAYS, SCHEMES, NetworkConfig, network_config, network_signature, signature_difference
from meetpoint.catalog.catalog import SHARED_SETTINGS
from meetpoint.overlays.hypercube import HypercubeSettings
from meetpoint.schemes.dmm import DmmSettings
from tests.broker.talking import broker, run

SCHEMA = "attributes: {price: {type: float, min: 0, max: 100}}"


def test_every_scheme_says_what_must_be_the_same() -> None:
    for name in SCHEMES:
        settings = getattr(NetworkConfig(scheme=name), name, None)
        assert all(hasattr(settings, field) for field in SHARED_SETTINGS[name])


def test_what_must_be_the_same_makes_a_difference_and_the_rest_none() -> None:
    one = NetworkConfig(scheme="dmm", dmm=DmmSettings(schema=SCHEMA))
    for settings, same in (
        (DmmSettings(schema=SCHEMA, threshold=7), True),
        (DmmSettings(schema=SCHEMA, delegation="never", coverage="uncovered", delivery="unicast"), True),
        (DmmSettings(schema=SCHEMA, depth=7), False),
        (DmmSettings(), False),
    ):
        other = msgspec.structs.replace(one, dmm=settings)
        assert (signature_difference(network_signature(one), network_signature(other)) is None) is same


def test_nodes_of_a_hypercube_agree_on_its_dimensions_and_no_others_need_to() -> None:
    one, other = (HypercubeSettings(dimensions=dimensions) for dimensions in (16, 17))
    for overlay, same in (("hypercube", False), ("chord", True)):
        ways = [network_signature(NetworkConfig(overlay=overlay, hypercube=settings)) for settings in (one, other)]
        assert (signature_difference(*ways) is None) is same
    assert "set meet.children and meet.plan and hypercube.dimensions as" in str(
        signature_difference(
            *(network_signature(NetworkConfig(overlay="hypercube", hypercube=settings)) for settings in (one, other))
        )
    )
    quick = HypercubeSettings(dimensions=16, period_us=500_000)
    assert network_signature(NetworkConfig(overlay="hypercube", hypercube=quick)) == network_signature(
        NetworkConfig(overlay="hypercube", hypercube=one)
    )


def test_each_overlay_and_scheme_differs_from_each_other() -> None:
    ways = [network_signature(network_config(overlay, scheme)) for overlay in OVERLAYS for scheme in SCHEMES]
    for one in ways:
        assert [other for other in ways if signature_difference(one, other) is None] == [one]


def test_a_broker_that_does_not_say_is_not_refused() -> None:
    assert signature_difference(network_signature(NetworkConfig()), "") is None
    assert signature_difference("", network_signature(NetworkConfig())) is None
    assert signature_difference("some thing else altogether", network_signature(NetworkConfig())) is None


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"scheme": "meet"}, "the network has the scheme dmm, not meet; set scheme as the network has it"),
        ({"scheme": "dmm"}, "set dmm.schema and dmm.depth as its other brokers have them"),
        ({"scheme": "dmm", "overlay": "pastry"}, "the network has the overlay chord, not pastry"),
    ],
)
def test_a_broker_that_differs_does_not_begin(other: dict[str, str], says: str) -> None:
    async def main() -> None:
        async with broker(scheme="dmm", dmm=DmmSettings(schema=SCHEMA)) as one:
            with pytest.raises(BrokerError, match=says):
                async with broker(join=(one.address,), **other):
                    raise AssertionError("it began")
            async with broker(join=(one.address,), scheme="dmm", dmm=DmmSettings(schema=SCHEMA, threshold=9)):
                """Of that each has its own."""

    run(main())
