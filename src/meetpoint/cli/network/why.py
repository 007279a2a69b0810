"""`meetpoint why`: what became of an event for a subscription, from what brokers remember of both.

The command collects the evidence from all brokers; `explain_delivery` asks nobody and says what follows from it, and
what is not known.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
import typer

from meetpoint.api.client_messages import DeadLetterInfo, HostedSubscription, JournalEntry
from meetpoint.api.ids import EventKey
from meetpoint.cli.network.connect import (
    LOCAL_NETWORK,
    BrokerLink,
    BrokerSet,
    ConnectOptions,
    all_dead_letters,
    brokers_at,
    just_before,
    run,
    with_connect_options,
)
from meetpoint.cli.options import AsJson
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, print_error, print_json
from meetpoint.errors import MeetpointError, one_line
from meetpoint.language.filters.explain import Explanation, explain

if TYPE_CHECKING:
    from meetpoint.api.client_messages import DeadLetterInfo, HostedSubscription
    from meetpoint.language import Event


__all__ = ["DeliveryReport", "Evidence", "JournalLine", "Verdict", "explain_delivery", "show_time"]


# -- the command -------------------------------------------------------------------------------------------------------


@with_connect_options()
def why(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event's id, as `pub` and `sub` print it.")],
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The subscription's name.")],
    at: ConnectOptions = LOCAL_NETWORK,
    as_json: AsJson = False,
) -> None:
    """What became of an event for a subscription: where it went, what stopped it, and what nobody knows any more."""
    reason = explain_delivery(run(_collect(at, event_id, subscription)))
    if as_json:
        print_json(reason.to_dict())
    else:
        sys.stdout.write(reason.text() + "\n")
    if not reason.is_known:
        raise typer.Exit(EXIT_SET_ASIDE)


async def _collect(at: ConnectOptions, event_id: str, name: str) -> Evidence:
    """Ask all brokers for all they know of the event and the subscription."""
    from meetpoint.api.client_messages import JournalReply, JournalRequest

    async with brokers_at(at) as brokers:
        all_brokers = await brokers.all()
        evidence = Evidence(
            event=event_id, name=name, homes={bytes(broker.peer.id): broker.peer.address for broker in all_brokers}
        )

        async def journal_lines(question: JournalRequest) -> list[JournalLine]:
            answers = await asyncio.gather(*(brokers.ask(broker, question, JournalReply) for broker in all_brokers))
            return [
                JournalLine(broker.peer.address, entry)
                for broker, answer in zip(all_brokers, answers, strict=True)
                for entry in (answer.lines if answer is not None else ())
            ]

        lines = await journal_lines(JournalRequest(event_id))
        for key in dict.fromkeys(line.entry.event for line in lines):  # whoever did not publish it knows only its key
            lines += await journal_lines(JournalRequest("", key))
        evidence.lines = list({(line.broker, line.entry): line for line in lines}.values())
        keys = {line.entry.event for line in lines}
        found = await asyncio.gather(*(_subscription_at(brokers, broker, name) for broker in all_brokers))
        for broker, (subscription, dead_letters) in zip(all_brokers, found, strict=True):
            if subscription is not None:
                evidence.subscription, evidence.host = subscription, broker.peer.address
            evidence.dead_letters += [
                dead_letter
                for dead_letter in dead_letters
                if dead_letter.event in keys or _has_id(dead_letter, event_id)
            ]
        evidence.silent = [broker.problem for broker in all_brokers if broker.problem]
        return evidence


async def _subscription_at(
    brokers: BrokerSet, broker: BrokerLink, name: str
) -> tuple[HostedSubscription | None, list[DeadLetterInfo]]:
    """Return the subscription, if this broker has it, and its dead letters there."""
    from meetpoint.api.client_messages import SubscriptionsReply, SubscriptionsRequest

    reply = await brokers.ask(broker, SubscriptionsRequest(after=just_before(name)), SubscriptionsReply)
    found = None if reply is None else next((each for each in reply.subscriptions if each.name == name), None)
    return found, await all_dead_letters(brokers, broker, name) or []


def _has_id(dead_letter: DeadLetterInfo, event_id: str) -> bool:
    from meetpoint.errors import MeetpointError
    from meetpoint.language.events.msgpack import from_msgpack

    try:
        return from_msgpack(dead_letter.content).id == event_id
    except MeetpointError:
        print_error("a dead letter cannot be read, and is passed over")
        return False


# -- the verdict -------------------------------------------------------------------------------------------------------


Verdict: TypeAlias = Literal[
    "delivered", "sent", "brought", "waiting", "dead", "not_accepted", "too_early", "under_way", "no_subscription",
    "no_event", "unknown",
]  # fmt: skip
"""The outcome of the event for the subscription.

`sent`: to a subscription that takes events at most once and acknowledges nothing.
"""

CLOCKS_US = 2_000_000
"""Brokers' clocks differ: the order of two times that are closer than this is not known."""


class JournalLine(msgspec.Struct, frozen=True):
    """A line of a broker's journal."""

    broker: str
    entry: JournalEntry


class Evidence(msgspec.Struct, kw_only=True):
    """All that brokers told about the event and the subscription."""

    event: str
    """The event's id as given by the user."""
    name: str
    lines: list[JournalLine] = []
    subscription: HostedSubscription | None = None
    host: str = ""
    """The address of the broker that has the subscription."""
    dead_letters: list[DeadLetterInfo] = []
    homes: dict[bytes, str] = {}
    """Addresses by the ids of homes."""
    silent: list[str] = []
    """The reasons why some brokers did not answer, a sentence each."""


class DeliveryReport(msgspec.Struct, frozen=True):
    """The verdict in a word and a sentence, and the evidence for it."""

    verdict: Verdict
    headline: str
    story: tuple[tuple[int, str], ...]
    """Moments (microseconds since 1970) with what happened."""
    explanation: Explanation | None
    unknown: tuple[str, ...]
    """The gaps in the evidence, a sentence each."""

    @property
    def is_known(self) -> bool:
        """Whether the verdict is more than a guess."""
        return self.verdict not in ("unknown", "no_event")

    def text(self) -> str:
        """Return the report as lines for people."""
        lines = [self.headline]
        lines += [f"  {show_time(at)}  {what}" for at, what in self.story]
        if self.explanation is not None:
            lines += ["the filter as it is now:", *("  " + line for line in self.explanation.text().splitlines())]
        lines += [f"not known: {what}" for what in self.unknown]
        return "\n".join(map(one_line, lines))  # names, ids and reasons are whatever somebody wrote

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "verdict": self.verdict,
            "headline": self.headline,
            "story": [{"time": show_time(at), "what": what} for at, what in self.story],
            "filter": None if self.explanation is None else self.explanation.to_dict(),
            "unknown": list(self.unknown),
        }


def show_time(at_us: int) -> str:
    """Format a time to the millisecond, in UTC, for people and programs."""
    try:
        return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return f"{at_us} µs"


def explain_delivery(evidence: Evidence) -> DeliveryReport:
    """Return what follows from the evidence."""
    return _Investigation(evidence).report()


class _Investigation:
    """The evidence for one question, sorted by step."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.name = evidence.name
        self.event: Event | None = None
        self.unknown = list(evidence.silent)
        self.lines = sorted(evidence.lines, key=lambda line: line.entry.at_us)
        self.published = self._steps("published")
        self.keys: set[EventKey] = {line.entry.event for line in self.published}
        self.fully_acknowledged = {line.entry.event for line in self._steps("settled")}
        self.taken = self._steps("taken", mine=True)
        self.notified = self._steps("notified", mine=True)
        self.acknowledged = self._steps("acknowledged", mine=True)
        self.rejected = self._steps("rejected", mine=True)
        self.dead = self._steps("dead", mine=True)
        self.explanation = self._explain()

    def _steps(self, step: str, *, mine: bool = False) -> list[JournalLine]:
        return [line for line in self.lines if line.entry.step == step and (not mine or self.name in line.entry.names)]

    def _explain(self) -> Explanation | None:
        from meetpoint.language.events.msgpack import from_msgpack

        contents = [line.entry.content for line in self.published if line.entry.content]
        contents += [dead_letter.content for dead_letter in self.evidence.dead_letters]
        for content in contents:
            try:
                self.event = from_msgpack(content)
                break
            except MeetpointError:
                self.unknown.append("what is kept of the event cannot be read")
        if self.event is None or self.evidence.subscription is None:
            return None
        try:
            return explain(self.evidence.subscription.filter, self.event)
        except MeetpointError as error:  # a broker of another version may take filters that are refused here
            self.unknown.append(f"whether the filter accepts it ({error})")
            return None

    # -- the verdict, the surest first ---------------------------------------------------------------------------------

    def report(self) -> DeliveryReport:
        """Return the report."""
        verdict, headline = self._verdict()
        return DeliveryReport(verdict, headline, tuple(self._story()), self.explanation, tuple(self.unknown))

    def _verdict(self) -> tuple[Verdict, str]:
        event, name = self.evidence.event, self.name
        if self.acknowledged:
            return "delivered", f"✓ {name} has it: acknowledged at {self._when(self.acknowledged)}"
        if self.dead or self.evidence.dead_letters:
            reason, at = self._last_words()
            return "dead", f"✗ it is a dead letter of {name} since {at}: {reason or 'no reason was given'}"
        if self.notified:
            return self._was_notified()
        if self.taken:
            return "waiting", f"… it waits for {name}, {self._why_it_waits()}"
        if not self.published and not self.lines:
            self.unknown.append("what happened longer ago than the last 200,000 steps or so that a broker remembers")
            return "no_event", (
                f"? no broker knows an event {event}: it was not published, its publishing was never acknowledged, "
                "or that was too long ago"
            )
        if self.evidence.subscription is None:
            return self._no_subscription()
        return self._never_came(self.evidence.subscription)

    def _was_notified(self) -> tuple[Verdict, str]:
        subscription = self.evidence.subscription
        if subscription is not None and not subscription.terms.durable:
            return "sent", (
                f"✓ it was sent to {self.name} at {self._when(self.notified)}; that one is not durable, takes "
                "events at most once and acknowledges nothing"
            )
        times = len(self.notified)
        said = f"{times} times" if times > 1 else "once"
        last = f"the last time at {self._when(self.notified)}" if times > 1 else f"at {self._when(self.notified)}"
        if self.rejected and self.rejected[-1].entry.at_us >= self.notified[-1].entry.at_us:
            reason = self.rejected[-1].entry.detail or "no reason was given"
            return "brought", f"… it was brought to {self.name} {said} and rejected, {last}: {reason}; it comes again"
        return "brought", f"… it was brought to {self.name} {said}, {last}, and is not acknowledged yet"

    def _no_subscription(self) -> tuple[Verdict, str]:
        if self.evidence.silent:
            return "unknown", f"? no broker that answers has a subscription {self.name}, and not all answer"
        return "no_subscription", (
            f"✗ there is no subscription {self.name}: it was never made, or it has ended (meetpoint subs list)"
        )

    def _never_came(self, subscription: HostedSubscription) -> tuple[Verdict, str]:
        if not self.published:
            return "unknown", "? the broker where it was published does not remember it any more"
        name, first = self.name, self.published[0].entry.at_us
        if subscription.subscribed_us > first + CLOCKS_US:
            late = (subscription.subscribed_us - first) / 1e6
            return "too_early", f"✗ {name} was made {late:,.0f} s after it was published, and gets what comes later"
        if self.explanation is not None and not self.explanation.accepted:
            return "not_accepted", f"✗ the filter of {name} does not accept it: {self.explanation.reason}"
        if subscription.subscribed_us > first - CLOCKS_US:
            return "too_early", (
                f"✗ {name} was made when it was published, at about the same moment: such an event may come or not"
            )
        if not self.keys <= self.fully_acknowledged:
            self.unknown.append("how far it has come: the broker that published it asks until all homes have answered")
            return "under_way", f"… it is on its way to {name}: published, and not yet brought to all who may want it"
        arrived = [line for line in self._steps("taken") if line.broker == self.evidence.host]
        if arrived:
            return "not_accepted", (
                f"✗ it came to the broker of {name} at {self._when(arrived)}, and the filter of that moment did not "
                "accept it; it was changed since"
            )
        self.unknown.append("which filter it had then, and what its broker did: it remembers nothing of this event")
        return "unknown", f"? the filter that {name} has now accepts it, and nothing tells whether it came"

    # -- in words ------------------------------------------------------------------------------------------------------

    def _when(self, of: list[JournalLine]) -> str:
        return show_time(of[-1].entry.at_us)

    def _last_words(self) -> tuple[str, str]:
        if self.dead:
            return self.dead[-1].entry.detail or self._letter_reason(), self._when(self.dead)
        return self._letter_reason(), show_time(self.evidence.dead_letters[-1].at_us)

    def _letter_reason(self) -> str:
        return self.evidence.dead_letters[-1].reason if self.evidence.dead_letters else ""

    def _why_it_waits(self) -> str:
        subscription = self.evidence.subscription
        if subscription is None:
            return "which has no broker that answers at present"
        if subscription.terms.paused:
            return "which is paused"
        if not subscription.is_present:
            return "which nobody takes at present: connect, or meetpoint sub … --durable"
        return f"with {subscription.queued:,} in line: it comes in its turn, after earlier events of its publisher"

    def _place(self, home: bytes) -> str:
        known = self.evidence.homes.get(home)
        return known if known is not None else f"home {home.hex()[:8]}"

    def _story(self) -> list[tuple[int, str]]:
        subscription = self.evidence.subscription
        story = [(line.entry.at_us, self._sentence(line)) for line in self.lines if self._concerns(line)]
        if subscription is not None:
            kind = "subscription" if subscription.terms.durable else "subscription (not durable)"
            story.append((subscription.subscribed_us, f"{kind} {self.name} was made; it is at {self.evidence.host}"))
        if not self.dead:
            story += [
                (dead_letter.at_us, f"became a dead letter: {dead_letter.reason}")
                for dead_letter in self.evidence.dead_letters
            ]
        return sorted(story, key=lambda step: step[0])

    def _concerns(self, line: JournalLine) -> bool:
        if line.entry.step in ("notified", "acknowledged", "rejected", "dead"):
            return self.name in line.entry.names
        return True

    def _sentence(self, line: JournalLine) -> str:
        entry, at = line.entry, line.broker
        more = f" ({entry.detail})" if entry.detail else ""
        match entry.step:
            case "published":
                again = ", again" if self.published and line is not self.published[0] else ""
                return f"published at {at}{again}, as number {entry.event.number} of its stream{more}"
            case "visited":
                return f"{at} asked {self._place(entry.home)} who wants it{more}"
            case "brought":
                return f"{at} brought it to {self._place(entry.home)}{more}"
            case "settled":
                return f"settled: every home that may want it has it, says {at}{more}"
            case "taken" if self.name in entry.names:
                others = len(entry.names) - 1
                return f"queued at {at} for {self.name}{f' and {others:,} more' if others else ''}{more}"
            case "taken":
                whom = f"for {len(entry.names):,} others" if entry.names else "where nobody wants it"
                return f"came to {at}, {whom}{more}"
            case "repeated":
                return f"came to {at} a second time, under the same id: dropped{more}"
            case "notified":
                return f"sent to {self.name} by {at}{more}"
            case "acknowledged":
                return f"acknowledged by {self.name} at {at}{more}"
            case "rejected":
                return f"rejected by {self.name} at {at}: {entry.detail or 'no reason was given'}"
            case "dead":
                return f"became a dead letter at {at}: {entry.detail or 'no reason was given'}"
        return f"{entry.step} at {at}{more}"
