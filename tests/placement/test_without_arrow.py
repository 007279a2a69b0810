"""Meetpoint itself is installed without NumPy and Arrow: then nothing has an index, and everything is found."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import sys

for name in ("numpy", "pyarrow", "numba"):
    sys.modules[name] = None

from meetpoint.language import parse_filter
from meetpoint.node.home.subscription_table import Subscription, SubscriptionTable
from meetpoint.placement.entries import entry_table
from meetpoint.placement.entries.entry_table import EntryTable

entry_table.FEW_MAX = 2
read = type("Read", (), {})
item = type("Item", (), {})


def lying(text):
    one, inside = item(), read()
    inside.filter = parse_filter(text)
    (inside.conjunction,) = inside.filter.conjunctions
    one.read = inside
    return one


there = EntryTable(lambda one: 0)
for n in range(100):
    there.add(str(n), lying(f"a > {n}"))
assert len(there.match({"a": 50}, lambda group: True)) == 50

standing = SubscriptionTable(2)
for n in range(10):
    text = f"a > {n}"
    standing.put(str(n), Subscription(n, text), parse_filter(text))
assert len(standing.match({"a": 5})) == 5
print("found")
"""


def test_many_conjunctions_and_subscriptions_are_matched_without_an_index() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("found\n", "")
