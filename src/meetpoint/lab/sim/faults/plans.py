"""Plans of faults: which kinds, how often, and when; by name or from a file.

    seconds: 60                    # how long the faults last
    repair_seconds: 60             # at most one disk is lost in so long
    faults:
      loss: 0.05                   # a rate alone, or
      crash: {rate: 6, lasts: [1, 10], begin: 0.2, end: 0.8}

What a rate means depends on the kind: the share of messages (delay, loss, duplication, reordering), of starts
(clock_skew) or of restarts (restart_with_disk, restart_without_disk), or, for all others, how often a minute in the
whole network. `begin` and `end` are parts of the time of faults, from 0 to 1; `lasts` is from how many seconds to how
many. Each kind that is named happens at least once, if there is time enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from meetpoint.errors import MeetpointError, one_line

__all__ = ["KINDS", "PLANS", "Fault", "FaultError", "Plan", "read_plan"]


class FaultError(MeetpointError):
    """A plan of faults was refused."""


class Fault(msgspec.Struct, frozen=True):
    """One kind of fault in a plan."""

    rate: float
    lasts: tuple[float, float] = (1.0, 10.0)
    begin: float = 0.0
    end: float = 1.0


class Plan(msgspec.Struct, frozen=True):
    """All faults of a run."""

    name: str
    faults: dict[str, Fault] = {}
    seconds: float = 60.0
    repair_seconds: float = 60.0


OF_MESSAGES: Final = ("delay", "loss", "duplication", "reordering")
OF_RESTARTS: Final = ("restart_with_disk", "restart_without_disk")
OF_STARTS: Final = ("clock_skew",)
OF_MINUTES: Final = (
    "partition", "one_way_partition", "slow_node", "crash", "join", "leave", "torn_write", "failed_write",
    "full_restart",
)  # fmt: skip
KINDS: Final = (*OF_MESSAGES, *OF_MINUTES, *OF_RESTARTS, *OF_STARTS)
PERFECT: Final = (
    "duplication", "reordering", "crash", "join", "leave", "torn_write", "failed_write", *OF_RESTARTS, *OF_STARTS,
)  # fmt: skip
"""The kinds that go with a perfect failure detector: none of them lets a live node seem dead."""

RATE_MAX: Final = 600.0
_SHARES_MAX: Final = {"delay": 0.5, "loss": 0.3, "duplication": 0.5, "reordering": 0.5}
_TOP: Final = ("seconds", "repair_seconds", "faults")
_OF_FAULT: Final = ("rate", "lasts", "begin", "end")

_CRASHES = {
    "crash": Fault(8, (1, 12)),
    "restart_with_disk": Fault(0.7),
    "restart_without_disk": Fault(0.3),
}
_CHURN = {**_CRASHES, "join": Fault(4), "leave": Fault(4)}
_PARTITION = {
    "delay": Fault(0.02, (0, 2)),
    "partition": Fault(2, (5, 20)),
    "one_way_partition": Fault(2, (2, 15)),
    "slow_node": Fault(2, (2, 15)),
}
_LOSSY = {
    "delay": Fault(0.03, (0, 5)),
    "loss": Fault(0.1),
    "duplication": Fault(0.1),
    "reordering": Fault(0.1),
    "slow_node": Fault(2, (2, 15)),
}
_DISK = {
    **_CRASHES,
    "torn_write": Fault(3, (1, 10)),
    "failed_write": Fault(3, (1, 10)),
    "full_restart": Fault(1, (1, 5), 0.5, 0.75),
}
PLANS: Final = {
    name: Plan(name, faults)
    for name, faults in {
        "none": {},
        "churn": _CHURN,
        "partition": _PARTITION,
        "lossy": _LOSSY,
        "disk": _DISK,
        "all": {**_CHURN, **_PARTITION, **_LOSSY, **_DISK, "clock_skew": Fault(0.5)},
    }.items()
}
"""The plans that have names."""


def read_plan(source: str | Plan) -> Plan:
    """A plan by its name or from a YAML file; FaultError says what is wrong."""
    if isinstance(source, Plan):
        return source
    if source in PLANS:
        return PLANS[source]
    path = Path(source)
    if path.suffix not in (".yaml", ".yml", ".json"):
        refuse("--faults", f"{source!r} is no plan", f"name one of {', '.join(PLANS)}, or a .yaml file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        refuse(source, f"cannot be read: {(error.strerror or str(error)).lower()}", "check the path")
    except UnicodeDecodeError as error:
        refuse(source, f"is not UTF-8 at byte {error.start}", "save it as UTF-8")
    return parse_plan(text, source)


def parse_plan(text: str, where: str) -> Plan:
    """A plan from YAML, of which JSON is a part."""
    import yaml

    try:
        top = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        refuse(where, f"is not YAML: {problem}", "see docs/simulator.md")
    top = _mapping(top, where, "the plan", _TOP)
    faults = {}
    for kind, given in _mapping(top.get("faults", {}), where, "`faults`", KINDS).items():
        faults[kind] = _read_fault(kind, given, where)
    return Plan(
        where,
        faults,
        _number(top.get("seconds", 60), where, "seconds", 1, 3600),
        _number(top.get("repair_seconds", 60), where, "repair_seconds", 10, 3600),
    )


def _read_fault(kind: str, given: object, where: str) -> Fault:
    if not isinstance(given, Mapping):
        given = {"rate": given}
    fields = _mapping(given, where, f"`{kind}`", _OF_FAULT)
    if "rate" not in fields:
        refuse(where, f"`{kind}` has no rate", "write how often it happens")
    at_most = RATE_MAX if kind in OF_MINUTES else _SHARES_MAX.get(kind, 1.0)
    rate = _number(fields["rate"], where, f"the rate of {kind}", 0, at_most)
    if rate == 0:
        refuse(where, f"the rate of {kind} is 0", "leave it out, or give it a rate")
    begin = _number(fields.get("begin", 0), where, f"the begin of {kind}", 0, 1)
    end = _number(fields.get("end", 1), where, f"the end of {kind}", 0, 1)
    if begin >= end:
        refuse(where, f"{kind} ends at {end} and begins at {begin}", "let it begin before it ends")
    lasts = fields.get("lasts", [1, 10])
    if not isinstance(lasts, list) or len(lasts) != 2:
        refuse(where, f"`lasts` of {kind} is {lasts!r}", "write two numbers of seconds, [1, 10]")
    low, high = (_number(value, where, f"`lasts` of {kind}", 0, 600) for value in lasts)
    if low > high:
        refuse(where, f"`lasts` of {kind} is from {low} to {high}", "write the smaller one first")
    return Fault(rate, (low, high), begin, end)


def _mapping(value: object, where: str, what: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        refuse(where, f"{what} is no mapping", "write `key: value` a line")
    for key in value:
        if key not in keys:
            near = get_close_matches(str(key), keys, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(keys)}"
            refuse(where, f"{what} has an unknown key {key!r}", hint)
    return dict(value)


def _number(value: object, where: str, what: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        refuse(where, f"{what} is {value!r}", f"give a number from {low:g} to {high:g}")
    return float(value)


def refuse(where: str, problem: str, hint: str) -> NoReturn:
    """A plan that cannot be."""
    raise FaultError(one_line(f"faults, {where}: {problem}; {hint}"))
