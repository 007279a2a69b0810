"""/openapi.json says what the gateway does: schemathesis sends what it allows and what it does not, and finds no fault.

One check of schemathesis is left out: that whatever fits the schema is accepted. A filter's text and an event's values
have rules that JSON Schema cannot say, and a refusal of those is documented (422).
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import positive_data_acceptance

from meetpoint.gateway import GatewayLimits
from meetpoint.local_network import Local, LocalNetwork
from tests.gateway.gateways import gateway, gateway_in_thread, run
from tests.tiers import SOAK

EXAMPLES = 20 if SOAK else 10
"""Of each operation, that fit, and as many that do not."""
STREAMS = ("/events", "/api/live")
"""GET of these does not end."""


@pytest.mark.slow
def test_schemathesis_finds_no_fault(in_thread: Local) -> None:  # it asks by blocking calls
    load_all_checks()
    tried: set[str] = set()
    with gateway_in_thread(in_thread.url) as served:
        schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
        rejecting = schema.config.checks.negative_data_rejection  # what does not fit may be too large as well
        rejecting.expected_statuses = [*rejecting.expected_statuses, "413"]
        for result in schema.get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            if operation.method.upper() == "GET" and operation.path in STREAMS:
                continue
            tried.add(f"{operation.method.upper()} {operation.path}")
            _attempt(operation, GenerationMode.POSITIVE)
            if len(operation.body) or len(operation.query):  # else nothing about it could be wrong
                _attempt(operation, GenerationMode.NEGATIVE)
        assert served.gateway.counters.totals["internal_errors"] == 0
    assert {"POST /events", "PUT /subscriptions/{id}", "POST /match"} <= tried


def _attempt(operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance], timeout=2 * GatewayLimits().request_s)

    attempt()


def test_every_route_is_described_and_everything_described_is_a_route(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client):
            described = (await client.get("/openapi.json")).json()
            told = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
            table = {
                (route.method, route.path.replace(":path}", "}"))
                for part in served.gateway.groups
                for route in part.routes
            }
            assert told == table
            for method, path in sorted(told - {("GET", path) for path in STREAMS}):
                json_response = await client.request(method, path.replace("{id}", "nobody"))
                assert json_response.status_code != 405, (method, path)
                assert str(json_response.status_code) in described["paths"][path][method.lower()]["responses"], (
                    method,
                    path,
                )

    run(main())
