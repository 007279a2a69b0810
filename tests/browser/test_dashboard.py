"""Every view of the dashboard, driven as a person would, against real brokers."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import FLIGHTS, LOOK_MS, Site
from tests.client.running import all_of_sync

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

VIEWS = ("Network", "Live", "Subscriptions", "Try it", "Compare", "Nodes")
HEAL_MS = 180_000
"""Within this a ring is whole again, and the page shows it."""

expect.set_options(timeout=LOOK_MS)


def go(page: Page, label: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("link", name=label).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(label)


def fill_event(page: Page, attributes: dict[str, str]) -> None:
    """Only these attributes, whatever the page suggests."""
    page.locator(".field").first.wait_for()
    folded = page.get_by_role("button", name=re.compile("more attribute"))
    if folded.count():
        folded.click()
    while page.locator(".field").count():
        page.locator(".field .icon-button").first.click()
    for name, value in attributes.items():
        page.get_by_role("button", name="Attribute", exact=True).click()
        page.locator(".field .name").last.fill(name)
        page.locator(".field .value").last.fill(value)


def publish(page: Page, attributes: dict[str, str]) -> Locator:
    """Publish from the page, and what it says became of it."""
    fill_event(page, attributes)
    page.get_by_role("button", name="Publish", exact=True).click()
    outcome = page.locator(".outcome")
    expect(outcome).to_contain_text("message")
    return outcome


def without_subscriptions(site: Site) -> str:
    """The port of a broker that serves none: what another serves does not wait for its return."""
    brokers = site.get("/api/network")["brokers"]
    busy = {each["broker"] for each in site.get("/api/subscriptions")["subscriptions"]}
    return next(str(each["address"]).rpartition(":")[2] for each in brokers if each["id"] not in busy)


def test_every_view_is_reached_by_mouse_and_by_keyboard(page: Page) -> None:
    for label in VIEWS:
        go(page, label)
    page.reload()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.get_by_role("link", name="Live").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("link", name="Subscriptions")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Subscriptions")


def test_the_drawing_has_every_broker_with_its_load_links_and_subscriptions(page: Page, site: Site) -> None:
    brokers = page.locator(".broker")
    expect(brokers).to_have_count(len(site.states()))
    expect(page.locator(".link.near")).to_have_count(len(site.states()))
    expect(page.locator(".subscriber")).to_have_count(site.get("/api/subscriptions")["total"])
    first = brokers.first
    first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".detail")).to_contain_text("127.0.0.1:")
    assert page.locator(".link.of-picked").count() >= 2


def test_an_event_is_published_and_seen_to_meet_exactly_its_subscriptions(page: Page, site: Site) -> None:
    outcome = publish(page, {"carrier": "UA", "origin": "JFK", "dep_delay": "90"})
    expect(outcome).to_contain_text("Met 2 subscriptions")
    steps = page.locator(".steps")
    for name in ("late-jfk", "united"):
        expect(steps.locator("li.delivered", has_text=name)).to_have_count(1)
        expect(page.locator(f'.subscriber[data-name="{name}"]')).to_have_class(re.compile("reached"))
    expect(page.locator('.subscriber[data-name="nobody"]')).not_to_have_class(re.compile("reached"))
    assert page.locator(".broker[data-journey~=met]").count() >= 1
    drawn = [page.query_selector(".subscriber.reached"), page.query_selector(".trail")]
    with page.expect_response("**/api/network"), page.expect_response("**/api/subscriptions*"):
        pass
    assert all(each is not None and each.evaluate("node => node.isConnected") for each in drawn), "it was drawn anew"
    slider = page.get_by_role("slider", name="Step of the journey")
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator(".subscriber.reached")).to_have_count(0)
    page.keyboard.press("End")
    expect(page.locator(".subscriber.reached")).to_have_count(2)
    page.get_by_role("button", name="Close the journey").click()
    expect(page.locator(".trail")).to_have_count(0)


def test_an_event_that_nobody_asked_for_meets_nobody(page: Page) -> None:
    outcome = publish(page, {"carrier": "B6", "origin": "LGA", "dep_delay": "1"})
    expect(outcome).to_contain_text("Nobody asked for it")
    expect(page.locator(".subscriber.reached")).to_have_count(0)


def test_what_was_published_arrives_exact_at_a_subscriber_beside_the_page(page: Page, site: Site) -> None:
    with site.net.subscribe("digits IS NOT NULL") as sub:
        publish(page, {"digits": "12345678901234567890123", "word": '"42"', "said": "42 is it", "yes": "true"})
        (event,) = all_of_sync(sub, 1)
    assert dict(event.attributes) == {"digits": 12345678901234567890123, "word": "42", "said": "42 is it", "yes": True}
    go(page, "Live")
    expect(page.locator(".feed li", has_text="12345678901234567890123").first).to_be_visible()


def test_a_refused_event_is_told_in_words(page: Page) -> None:
    fill_event(page, {"carrier": "UA"})
    page.get_by_role("button", name="Attribute", exact=True).click()
    page.locator(".field .name").last.fill("carrier")
    page.locator(".field .value").last.fill("DL")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.locator(".publish .note")).to_have_text("The attribute carrier is there twice.")


def test_live_shows_rates_and_the_last_events(page: Page, site: Site) -> None:
    go(page, "Live")
    site.net.publish_many(FLIGHTS)
    expect(page.locator(".tile", has_text="Published").locator(".figure")).to_have_text(re.compile(r"[1-9]"))
    expect(page.locator(".feed li.hit").first).to_contain_text("met")
    expect(page.locator(".brokers tbody tr")).to_have_count(len(site.states()))
    page.get_by_role("button", name="Pause").click()
    before = page.locator(".feed").inner_text()
    site.net.publish({"carrier": "while-paused"})
    page.wait_for_timeout(2500)
    assert page.locator(".feed").inner_text() == before
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".feed")).to_contain_text("while-paused")


def test_markup_in_events_and_filters_is_shown_as_text(page: Page, site: Site) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    bad = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    go(page, "Live")
    with site.net.subscribe(f"note = '{bad}'"):
        site.net.publish({"note": bad, bad: 1})
        expect(page.locator(".feed .value", has_text=bad).first).to_be_visible()
        go(page, "Subscriptions")
        expect(page.locator(".subscriptions .filter", has_text=bad).first).to_be_visible()
        go(page, "Try it")
        page.locator("#filter").fill(f"note = '{bad}'")
        expect(page.locator(".explained .yes").first).to_contain_text(bad)
    for label in VIEWS:
        go(page, label)
        assert page.locator("main img, main script").count() == 0


def test_subscriptions_are_searched_and_sorted(page: Page, site: Site) -> None:
    site.net.publish_many(FLIGHTS)
    go(page, "Subscriptions")
    names = page.locator(".subscriptions tbody .title")
    page.get_by_role("button", name="Name").click()
    expect(names.first).to_have_text("late-jfk")
    page.get_by_role("button", name="Silent").click()
    expect(names.first).to_have_text("nobody")
    expect(page.locator("tbody tr", has_text="nobody").first).to_contain_text("never matched")
    page.get_by_role("button", name="Hot").click()
    expect(names.first).to_have_text("united")
    page.get_by_role("searchbox").fill("jfk")
    expect(names).to_have_text(["late-jfk"])
    page.get_by_role("searchbox").fill("no such thing")
    expect(page.locator(".card [role=status]")).to_contain_text("None has this")


def test_more_subscriptions_than_a_page_has_are_counted_all(page: Page, site: Site) -> None:
    with contextlib.ExitStack() as held:
        for n in range(120):
            held.enter_context(site.net.subscribe(f"many = {n}"))
        total = site.get("/api/subscriptions")["total"]
        page.reload()
        mine = page.locator(".broker", has=page.locator(".more", has_text=re.compile(r"\+1\d\d")))
        expect(mine).to_have_count(1)  # where the client is connected
        drawn = mine.evaluate(
            "one => one.querySelectorAll('.subscriber').length + Number(one.querySelector('.more').textContent)"
        )
        assert drawn >= 120
        expect(mine).to_have_attribute("aria-label", re.compile(f" {drawn} subscriptions$"))
        go(page, "Subscriptions")
        expect(page.locator(".card [role=status]")).to_contain_text(f"{total} subscriptions; of the 100 shown")


def test_a_mistake_is_shown_where_it_is_while_one_types(page: Page) -> None:
    go(page, "Try it")
    field = page.locator("#filter")
    field.fill("")
    field.press_sequentially("carrier == 'UA'", delay=20)
    expect(page.locator(".pointer mark")).to_have_text("==")
    expect(page.locator(".verdict .wrong")).to_contain_text("=")
    expect(page.get_by_role("button", name="Subscribe")).to_be_disabled()
    field.fill("carrier = 'UA'")
    expect(page.locator(".verdict .right")).to_contain_text("Good")
    expect(page.get_by_role("button", name="Subscribe")).to_be_enabled()


def test_a_filter_is_explained_backtested_and_subscribed_to(page: Page, site: Site) -> None:
    site.net.publish_many({**each, "batch": "backtest"} for each in FLIGHTS)
    go(page, "Try it")
    page.locator("#filter").fill("batch = 'backtest' AND carrier = 'UA' AND origin = 'JFK' AND dep_delay > 60")
    expect(page.locator(".explained .yes").first).to_contain_text("UA")
    expect(page.locator(".explained .no").first).to_contain_text(re.compile("is not|is below"))
    expect(page.locator(".verdict .right")).to_contain_text("accepts 2 of")
    page.get_by_role("button", name="Backtest").click()
    expect(page.locator(".history .figure")).to_have_text(re.compile(r"^2 of [\d,]+ events$"))
    assert page.locator(".timeline rect").count() >= 1
    expect(page.locator(".misses li", has_text="dep_delay > 60")).to_contain_text("2")
    page.get_by_role("button", name="Subscribe").click()
    mine = page.locator(".subscribed")
    expect(mine.locator(".badge")).to_have_text("subscribed")
    site.net.publish({"batch": "backtest", "carrier": "UA", "origin": "JFK", "dep_delay": 61, "seat": "12A"})
    site.net.publish({"batch": "backtest", "carrier": "UA", "origin": "JFK", "dep_delay": 60, "seat": "12B"})
    expect(mine).to_contain_text("1 event came")
    go(page, "Live")
    go(page, "Try it")
    expect(page.locator(".subscribed")).to_contain_text("1 event came")
    page.get_by_role("button", name="End").click()
    expect(page.locator(".subscribed")).to_have_count(0)


def test_a_named_subscription_waits_while_the_page_is_closed(page: Page, site: Site) -> None:
    def subscribe() -> None:
        go(page, "Try it")
        page.locator("#filter").fill("kept = TRUE")
        expect(page.get_by_role("button", name="Subscribe")).to_be_enabled()
        page.get_by_label("Name, to make it durable").fill("kept")
        page.get_by_role("button", name="Subscribe").click()
        expect(page.locator(".subscribed .badge")).to_have_text("subscribed")

    subscribe()
    page.reload()
    site.net.publish({"kept": True, "seat": "14C"})
    subscribe()
    expect(page.locator(".subscribed")).to_contain_text("14C")
    page.get_by_role("button", name="Close").click()
    site.net.subscribe("kept = TRUE", durable="kept", replace=True).unsubscribe()


def test_compare_says_how_to_make_a_report_and_shows_it_when_there_is_one(page: Page, site: Site) -> None:
    go(page, "Compare")
    expect(page.locator(".report")).to_contain_text("meetpoint experiment report")
    written = site.report / "index.html"
    written.write_text("<!doctype html><style>h1 { color: rgb(1, 2, 3) }</style><h1>Five papers, measured</h1>")
    try:
        go(page, "Live")
        go(page, "Compare")
        title = page.frame_locator(".report iframe").locator("h1")
        expect(title).to_have_text("Five papers, measured")
        expect(title).to_have_css("color", "rgb(1, 2, 3)")
    finally:
        written.unlink()


def test_a_killed_broker_is_seen_and_the_others_close_the_gap(page: Page, site: Site) -> None:
    before = site.states()
    go(page, "Nodes")
    health = page.locator(".health")
    expect(health).to_have_attribute("data-state", "whole", timeout=HEAL_MS)
    port = without_subscriptions(site)
    row = page.locator(".nodes li", has=page.get_by_text(port, exact=True))
    row.get_by_role("button", name="Crash").click()
    expect(row.locator(".badge")).to_have_text("silent", timeout=HEAL_MS)
    expect(page.locator(f'.broker[aria-label^="Broker {port}"]')).to_have_attribute("data-state", "silent")
    expect(health).to_have_attribute("data-state", "reduced", timeout=HEAL_MS)
    assert site.states() == {**before, port: "silent"}
    go(page, "Network")
    expect(publish(page, {"carrier": "UA"})).to_contain_text("Met 1 subscription", timeout=HEAL_MS)
    go(page, "Nodes")
    row.get_by_role("button", name="Start").click()
    expect(health).to_have_attribute("data-state", "whole", timeout=HEAL_MS)
    assert site.states() == before
    log = page.locator(".log")
    expect(log).to_contain_text(f"Broker {port} does not answer.")
    expect(log).to_contain_text(f"Broker {port} serves.")


def test_the_keyboard_stays_where_it_was_when_a_list_is_drawn_anew(page: Page, site: Site) -> None:
    focused = page.locator(":focus")
    go(page, "Subscriptions")
    page.get_by_role("button", name="Name").click()
    page.locator(".filter-link").nth(1).focus()
    words = focused.inner_text()
    focused.evaluate("link => link.setAttribute('data-former', '')")
    expect(page.locator("[data-former]")).to_have_count(0)
    expect(focused).to_have_text(words)
    go(page, "Nodes")
    expect(page.locator(".health")).to_have_attribute("data-state", "whole", timeout=HEAL_MS)
    port = without_subscriptions(site)
    row = page.locator(".nodes li", has=page.get_by_text(port, exact=True))
    row.get_by_role("button", name="Crash").focus()
    page.keyboard.press("Enter")
    expect(row.locator(".badge")).to_have_text("silent", timeout=HEAL_MS)
    expect(row.get_by_role("button", name="Start")).to_be_focused()
    page.keyboard.press("Enter")
    expect(row.locator(".badge")).to_have_text("ready", timeout=HEAL_MS)
    expect(page.locator(".nodes li:focus, .nodes li :focus")).to_have_count(1)
    expect(page.locator(".health")).to_have_attribute("data-state", "whole", timeout=HEAL_MS)


def test_a_broker_joins_and_leaves(page: Page, site: Site) -> None:
    before = set(site.states())
    go(page, "Nodes")
    page.get_by_role("button", name="Join a broker").click()
    rows = page.locator(".nodes li")
    expect(rows).to_have_count(len(before) + 1, timeout=HEAL_MS)
    (new,) = set(site.states()) - before
    mine = page.locator(".nodes li", has=page.get_by_text(new, exact=True))
    expect(mine.locator(".badge")).to_have_text("ready", timeout=HEAL_MS)
    mine.get_by_role("button", name="Leave").click()
    page.get_by_role("button", name="Let it leave").click()
    expect(rows).to_have_count(len(before), timeout=HEAL_MS)
    assert set(site.states()) == before


def test_the_page_says_that_it_lost_the_gateway_and_comes_back_by_itself(page: Page, site: Site) -> None:
    go(page, "Live")
    page.route("**/api/**", lambda route: route.abort())
    page.evaluate("window.stop()")
    expect(page.locator("#connection")).to_have_attribute("data-state", re.compile("reconnecting|away"))
    expect(page.locator("#trouble")).to_contain_text("Trying again by itself")
    page.unroute("**/api/**")
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(page.locator("#trouble")).to_be_hidden()


def test_a_network_that_wants_a_token_says_so(page: Page) -> None:
    refusal = '{"error": {"kind": "token", "message": "a token is needed"}}'
    page.route("**/api/**", lambda route: route.fulfill(status=401, content_type="application/json", body=refusal))
    page.reload()
    expect(page.locator("#connection")).to_have_attribute("data-state", "locked")
    expect(page.locator("#trouble")).to_contain_text("Paste yours with the key")
    page.unroute("**/api/**")
    page.get_by_role("button", name="Access token").click()
    page.get_by_label("Token", exact=True).fill("abc.def.ghi")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(page.locator("#trouble")).to_be_hidden()


def test_the_theme_is_that_of_the_system_until_one_is_chosen(page: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(paper)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(paper)
    assert dark != light
    page.get_by_role("button", name="Use dark colours").click()
    assert page.evaluate(paper) == dark
    page.reload()
    assert page.evaluate(paper) == dark


def test_a_token_is_sent_with_every_request_and_kept_in_the_tab_only(page: Page) -> None:
    page.get_by_role("button", name="Access token").click()
    page.get_by_label("Token", exact=True).fill("abc.def.ghi")
    with page.expect_request("**/api/live") as asked:
        page.get_by_role("button", name="Use it").click()
    assert asked.value.headers["authorization"] == "Bearer abc.def.ghi"
    with page.expect_request("**/api/subscriptions*") as asked:
        go(page, "Subscriptions")
    assert asked.value.headers["authorization"] == "Bearer abc.def.ghi"
    assert page.evaluate("sessionStorage.getItem('meetpoint-token')") == "abc.def.ghi"
    assert page.evaluate("JSON.stringify(localStorage)").count("abc.def") == 0
    assert page.evaluate("document.cookie") == ""


def test_no_view_is_wider_than_a_phone(phone: Page) -> None:
    for label in VIEWS:
        go(phone, label)
        phone.wait_for_timeout(300)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 360, label
