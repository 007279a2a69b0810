"""Loading: modules that are not needed are not loaded, and every public name is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from meetpoint import security


@pytest.mark.slow
@pytest.mark.parametrize("module", ["meetpoint.broker", "meetpoint.client", "meetpoint.cli.app"])
def test_a_broker_and_a_client_without_certificates_load_no_cryptography(module: str) -> None:
    look = f"import sys, {module}; print(sorted({{'jwt', 'cryptography'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in security.__all__:
        assert getattr(security, name).__name__ == name
    with pytest.raises(AttributeError, match="Nothing"):
        _ = security.Nothing  # type: ignore[attr-defined, unused-ignore]
