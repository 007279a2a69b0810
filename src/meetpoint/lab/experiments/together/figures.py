"""Figures of all schemes: each metric against one of the axes, the others as in the baseline."""

from __future__ import annotations

from typing import Any, Final

from meetpoint.lab.experiments.experiment import ClaimedCurve, Figure, Fit, Parameter

BASE: Final[dict[str, Parameter]] = {"nodes": 32, "subscriptions": 300, "width": 0.05, "held": 8}
"""The baseline of the axes that do not vary; also in a quick run."""
AXES: Final = {
    "nodes": "brokers, N",
    "subscriptions": "subscriptions",
    "width": "share of its values that a range of numbers accepts",
    "held": "attributes that an event has, of 16",
}
SCHEMES: Final = {
    "flood": "flood",
    "lists": "lists (A, B), coordinated",
    "lists:distributed": "lists, distributed",
    "lists:hybrid": "lists, hybrid",
    "meet": "meet (ours)",
    "dmm": "dmm (D)",
    "reach": "reach (C)",
    "rebeca": "rebeca (E)",
}


def beside(axis: str) -> dict[str, Parameter]:
    """Return the baseline without the axis that varies."""
    return {name: value for name, value in BASE.items() if name != axis}


def _figure(name: str, axis: str, title: str, y: str, y_label: str, **more: Any) -> Figure:
    return Figure(
        name=f"{name}-by-{axis}",
        title=title,
        part="costs",
        x=axis,
        x_label=AXES[axis],
        y=y,
        y_label=y_label,
        lines="scheme",
        labels=SCHEMES,
        where=beside(axis),
        log_x=True,
        **more,
    )


_MILLION = Fit(model="power")
_TO_ALL = ClaimedCurve(label="2 (N − 1): to everybody, and answers", y=lambda nodes: max(1.0, 2 * (nodes - 1)))

FIGURES = (
    _figure(
        "bringing",
        "nodes",
        "Messages to bring an event, and answers",
        "bringing_messages_per_event",
        "messages an event",
        log_y=True,
        fit=_MILLION,
        drawn=(_TO_ALL,),
        says="Without safekeeping, which goes with the matches and is the same for all. Beyond what was run the lines "
        "are an extrapolation with the same 300 subscriptions: lists and meet ask so many keys at most, and bend.",
    ),
    *(
        _figure(
            "bringing",
            axis,
            "Messages to bring an event, and answers",
            "bringing_messages_per_event",
            "messages an event",
            log_y=True,
        )
        for axis in ("subscriptions", "width", "held")
    ),
    _figure(
        "messages", "nodes", "All messages that an event causes", "messages_per_event", "messages an event", log_y=True
    ),
    *(
        _figure("bytes", axis, "Bytes that an event causes", "bytes_per_event", "bytes an event", log_y=True)
        for axis in ("nodes", "subscriptions", "width")
    ),
    *(
        _figure("subids", axis, "SubIDs that are sent", "subids_per_event", "SubIDs an event")
        for axis in ("nodes", "subscriptions", "width")
    ),
    *(
        _figure(
            "subids-per-match",
            axis,
            "SubIDs that are sent for each true match",
            "subids_per_match",
            "SubIDs",
            drawn=(ClaimedCurve(label="one a match", y=lambda x: 1.0),),
        )
        for axis in ("subscriptions", "width")
    ),
    _figure(
        "subscribing",
        "nodes",
        "Messages for a subscription",
        "messages_per_subscription",
        "messages a subscription",
        log_y=True,
        fit=_MILLION,
        says="rebeca tells everybody who is not covered: about N messages.",
    ),
    _figure(
        "subscribing",
        "subscriptions",
        "Messages for a subscription",
        "messages_per_subscription",
        "messages a subscription",
        log_y=True,
    ),
    _figure(
        "subscribing-bytes",
        "subscriptions",
        "Bytes for a subscription",
        "bytes_per_subscription",
        "bytes a subscription",
        log_y=True,
        says="What rebeca tells is whole tables, and they grow.",
    ),
    *(
        _figure(
            "entries", axis, "Entries stored for a subscription", "entries_per_subscription", "entries a subscription"
        )
        for axis in ("nodes", "subscriptions", "width")
    ),
    *(
        _figure(
            "fullest",
            axis,
            "The fullest broker",
            "fullest_to_mean",
            "its entries, to the mean of all brokers",
            log_y=True,
            drawn=(ClaimedCurve(label="even", y=lambda x: 1.0),),
        )
        for axis in ("nodes", "subscriptions")
    ),
    _figure(
        "busiest",
        "nodes",
        "The busiest broker",
        "busiest_to_mean",
        "messages with events to it, to the mean of all brokers",
        log_y=True,
        drawn=(ClaimedCurve(label="even", y=lambda nodes: 1.0),),
    ),
    _figure(
        "hops",
        "nodes",
        "Messages, one after another, until an event is where it notifies",
        "hops",
        "messages, mean",
        log_y=True,
        fit=Fit(model="log"),
    ),
    _figure("ms", "nodes", "Until a subscriber is notified", "ms", "ms, median", fit=Fit(model="log")),
    _figure("ms", "subscriptions", "Until a subscriber is notified", "ms", "ms, median"),
    *(
        _figure("visited", axis, "Brokers that an event visits", "visited_nodes", "brokers an event", log_y=True)
        for axis in ("nodes", "held")
    ),
    _figure(
        "upkeep",
        "nodes",
        "Upkeep when nobody does anything",
        "upkeep_messages_per_node_s",
        "messages a broker and second",
        fit=Fit(model="log"),
    ),
    *(
        _figure(
            "matches", axis, "Subscriptions that an event matches", "matches_per_event", "matches an event", log_y=True
        )
        for axis in ("subscriptions", "width")
    ),
)
