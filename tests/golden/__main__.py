"""`python -m tests.golden [wire] [runs]`: write the golden files anew, where a change of what they say is meant."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.golden.runs import CASES, digest
from tests.golden.samples import encoded

HERE = Path(__file__).parent


def main(*what: str) -> None:
    if "wire" in what:
        (HERE / "wire.json").write_text(json.dumps(encoded(), indent=0, ensure_ascii=False) + "\n")
    if "runs" in what:
        found = {f"{scheme} {seed}": digest(scheme, seed) for scheme, seed in CASES}
        (HERE / "runs.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["wire", "runs"]))
