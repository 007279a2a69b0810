"""Processes that start quickly: they are forked from one that has imported what they run."""

from __future__ import annotations

import multiprocessing

__all__ = ["PROCESSES"]

PROCESSES = multiprocessing.get_context("forkserver")
"""Its processes have no thread of the test's own process."""

PROCESSES.set_forkserver_preload(["tests.archive.test_archive", "tests.archive.test_compaction"])
