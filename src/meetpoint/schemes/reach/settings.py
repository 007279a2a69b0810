"""What a network that runs `reach` may choose, and the ids that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.schema.schema import Schema
from meetpoint.node.runtime.ring import BITS_MAX
from meetpoint.schemes.reach.ids import AttributeIds, Ids, SignatureIds

__all__ = ["ReachSettings", "dimensions_of", "ids_of"]


class ReachSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all nodes of a network."""

    schema: str = ""
    """The attributes that have bits, as YAML. Without any, ids of attributes have no bits: all lies at one place."""
    ids: Literal["attributes", "signatures"] = "attributes"
    """A bit for each attribute, as in the paper; or bits by hash, of attributes and their values."""
    width: Annotated[int, msgspec.Meta(ge=1, le=BITS_MAX)] = 16
    """How many bits signatures have."""
    quench: Literal["quenched", "unquenched"] = "quenched"
    """Whether events are kept from where nothing is wanted."""
    copies: Literal["copied", "uncopied"] = "copied"
    """Whether those above a busy place have copies of what lies there, and answer for it."""
    pushing: Literal["pushed", "unpushed"] = "pushed"
    """Whether an id with many entries is pushed away to a home with few."""
    lease_us: Annotated[int, msgspec.Meta(ge=1)] = 10 * SECOND_US
    """How long others may rely on what they were told, or have copies of. A subscription may wait so long for a broker
    that was lost with either."""
    busy_per_s: Annotated[float, msgspec.Meta(ge=0)] = 50.0
    """A place that more events come to is busy."""
    push_above: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    """A home with more entries may push an id away."""


class _NoIds:
    """Ids without bits: every conjunction lies at one place, and every event goes there."""

    width = 1

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """No bit."""
        return 0

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """No bit."""
        return 0


def ids_of(settings: ReachSettings) -> Ids:
    """How ids are made."""
    schema = Schema.from_yaml(settings.schema) if settings.schema else None
    if settings.ids == "signatures":
        return SignatureIds(schema, settings.width)
    return _NoIds() if schema is None else AttributeIds(schema)


def dimensions_of(settings: ReachSettings) -> int:
    """How many bits ids have, as far as they choose a place: what a hypercube has as dimensions."""
    return min(ids_of(settings).width, BITS_MAX)
