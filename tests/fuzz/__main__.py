"""Fuzz one target: `python -m tests.fuzz parser --runs 100000`; an input that breaks it is printed and kept."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import atheris  # type: ignore[import-untyped]

INSTRUMENTED = (
    "meetpoint.language",
    "meetpoint.api",
    "meetpoint.matching.scan",
    "meetpoint.gateway.events.cloud_events",
)


def _others() -> list[str]:
    """Return the modules of `meetpoint` that are not fuzzed.

    atheris includes by the first part of a name only: without this list it instruments all of `meetpoint`, which takes
    ten seconds of every run.
    """
    spec = find_spec("meetpoint")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    files = [path.relative_to(root.parent).with_suffix("") for path in root.rglob("*.py")]
    names = [".".join(file.parts).removesuffix(".__init__") for file in files]
    return [name for name in names if not f"{name}.".startswith(tuple(f"{each}." for each in INSTRUMENTED))]


with atheris.instrument_imports(include=["meetpoint"], exclude=_others()):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Run atheris, which ends the process: with 0 where nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=100_000, help="how many inputs are tried")
    parser.add_argument("--seed", type=int, default=1, help="which ones: the same seed tries the same inputs")
    parser.add_argument("--length", type=int, default=1000, help="the longest input, in bytes")
    parser.add_argument("--timeout", type=int, default=20, help="how many seconds one input may take")
    parser.add_argument("--keep", type=Path, default=Path(), help="where an input that breaks it is kept")
    told = parser.parse_args()
    target = TARGETS[told.target]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(target.seeds):
            (corpus / str(number)).write_bytes(seed)
        words = Path(folder) / "words"
        words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in target.words))
        options = [f"-atheris_runs={told.runs}", f"-seed={told.seed}", f"-max_len={told.length}", f"-dict={words}"]
        options += [
            f"-artifact_prefix={told.keep}/{told.target}-",
            f"-timeout={told.timeout}",
            "-verbosity=0",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *options, str(corpus)], target.check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
