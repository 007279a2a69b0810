"""Settings of the whole suite: the tier that runs (tests/tiers.py), and how Hypothesis draws examples.

Hypothesis draws the same examples in every run, so that a red suite is red for everyone; `make soak` draws new ones.
"""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.tiers import CASES_QUICK, LONG_S, NOT_QUICK, OVER_10_S, SEEDS, SOAK, is_under, spread

NAMED_MAX = 10
"""So many tests that took long are named, the longest first."""

settings.register_profile(
    "same", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("same"), max_examples=20)
settings.register_profile("new", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell runs in the background: tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run the quick tier of tests/tiers.py alone")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes about a second or more; `make test-quick` leaves it out")
    config.addinivalue_line("markers", "soak: takes minutes, or only repeats other tests; only `make soak` runs it")
    settings.load_profile("new" if SOAK else "quick" if config.getoption("--quick") else "same")


def pytest_ignore_collect(collection_path: object, config: pytest.Config) -> bool | None:
    """Do not even import what the quick tier leaves out."""
    if not config.getoption("--quick"):
        return None
    path = str(collection_path).removeprefix(f"{config.rootpath}/")
    return True if path in NOT_QUICK else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = items if SOAK else _each_choice(_first_seeds([i for i in items if not i.get_closest_marker("soak")]))
    if config.getoption("--quick"):
        cases: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in kept:
            if not item.get_closest_marker("slow") and not is_under(NOT_QUICK, item.nodeid):
                cases[item.nodeid.partition("[")[0]].append(item)
        kept = [item for each in cases.values() for item in spread(each, CASES_QUICK)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept


def _first_seeds(items: list[pytest.Item]) -> list[pytest.Item]:
    """Leave out the cases of a test that differ from others by their seed alone, but for the first SEEDS."""
    met: Counter[object] = Counter()
    kept = []
    for item in items:
        params = dict(item.callspec.params) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "seed" in params:
            del params["seed"]
            case = (item.nodeid.partition("[")[0], repr(params))
            met[case] += 1
            if met[case] > SEEDS:
                continue
        kept.append(item)
    return kept


def _each_choice(items: list[pytest.Item]) -> list[pytest.Item]:
    """Leave out cases of a test that only combine choices which other cases have made.

    A choice is what one `parametrize` gives, so that with one of them all cases stay, and with several as many as
    make each choice once: those of which every choice is new, then those of which any is.
    """
    met: dict[str, set[tuple[int, str]]] = defaultdict(set)
    kept = set()
    for enough in (set.isdisjoint, lambda new, old: not new <= old):
        for item in items:
            choices = set(enumerate(item.callspec._idlist)) if hasattr(item, "callspec") else {(0, item.nodeid)}
            if enough(choices, met[item.nodeid.partition("[")[0]]):
                met[item.nodeid.partition("[")[0]] |= choices
                kept.add(item)
    return [item for item in items if item in kept]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that took long and do not say why."""
    if not SOAK:
        for line in _unexplained(terminalreporter):
            terminalreporter.write_line(line)


def _unexplained(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    took: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid.partition("@")[0]] += report.duration  # pytest-xdist appends the group
    long = [(took[nodeid], nodeid) for nodeid in took if took[nodeid] > LONG_S and not is_under(OVER_10_S, nodeid)]
    for seconds, nodeid in sorted(long, reverse=True)[:NAMED_MAX]:
        yield f"{nodeid} took {seconds:.0f} s: if it does so on an idle machine, say why in OVER_10_S of tests/tiers.py"
    if len(long) > NAMED_MAX:
        yield f"{len(long) - NAMED_MAX} other tests took over {LONG_S:g} s and do not say why"
