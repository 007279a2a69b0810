// Rates, latency, queues and the last events, as they happen.

import { bar, spark } from "../charts.js";
import { announce, el, put, setText } from "../dom.js";
import { chips } from "../filters.js";
import { brief, clock, count, many, ms } from "../values.js";
import { world } from "../world.js";

const SHOWN = 40;
const ANNOUNCE_MS = 10_000;

const WAITING = "for a subscriber or an earlier event";

export function mount(root) {
  const stop = new AbortController();
  const tiles = {
    published: tile("Published", "events a second"),
    delivered: tile("Delivered", "notifications a second"),
    latency: tile("Latency", "from publish to subscriber"),
    queued: tile("Waiting", WAITING),
  };
  const feed = el("ol", { class: "feed", tabindex: "0", "aria-label": "Last events" });
  const brokers = el("tbody", {});
  const pause = el("button", { type: "button", class: "small", "aria-pressed": "false" }, "Pause");
  const wide = (title, ...children) => el("section", { class: "card" }, title, ...children);
  let isPaused = false;
  let unread = { events: 0, matched: 0, since: performance.now() };

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    setText(pause, isPaused ? "Resume" : "Pause");
    if (!isPaused) put(feed, world.events.slice(0, SHOWN).map(line));
  });

  function update(fresh) {
    const now = world.last;
    if (now === null) return;
    const series = (pick) => world.history.map((each) => pick(each) ?? 0);
    tiles.published.set(
      brief(now.published_per_s),
      series((each) => each.published_per_s),
    );
    tiles.delivered.set(
      brief(now.delivered_per_s),
      series((each) => each.delivered_per_s),
    );
    const latency = now.latency_ms;
    tiles.latency.set(
      latency ? ms(latency.p50) : "–",
      series((each) => each.latency_ms?.p50),
      latency ? `half within; 99 of 100 within ${ms(latency.p99)}` : "no event was delivered lately",
    );
    tiles.queued.set(
      count(now.queued),
      series((each) => each.queued),
      now.dead ? `and ${many(now.dead, "dead letter")}` : WAITING,
    );
    const busy = (each) => (each.published_per_s ?? 0) + (each.delivered_per_s ?? 0);
    const told = (value, say) => (value === null ? "–" : say(value));
    const most = Math.max(1e-9, ...now.brokers.map(busy));
    put(
      brokers,
      now.brokers.map((each) =>
        el(
          "tr",
          {},
          el(
            "th",
            { scope: "row" },
            world.name(each.id),
            each.state !== "ready" && el("span", { class: `badge ${each.state}` }, each.state),
          ),
          el("td", { class: "busy" }, bar(busy(each) / most)),
          el("td", { class: "number" }, told(each.published_per_s, brief)),
          el("td", { class: "number" }, told(each.delivered_per_s, brief)),
          el("td", { class: "number" }, told(each.queued, count)),
        ),
      ),
    );
    if (isPaused || !fresh?.length) return;
    feed.prepend(...fresh.toReversed().map(line));
    while (feed.children.length > SHOWN) feed.lastElementChild.remove();
    unread.events += fresh.length;
    unread.matched += fresh.filter((each) => each.matched > 0).length;
    if (performance.now() - unread.since > ANNOUNCE_MS) {
      announce(`${many(unread.events, "new event")}, ${count(unread.matched)} met subscriptions`);
      unread = { events: 0, matched: 0, since: performance.now() };
    }
  }

  put(
    root,
    el(
      "div",
      { class: "heading" },
      el("h1", {}, "Live"),
      el("p", { class: "lead" }, "What happens now, in all brokers together, over the last two minutes."),
    ),
    el(
      "div",
      { class: "tiles" },
      Object.values(tiles).map((each) => each.node),
    ),
    el(
      "div",
      { class: "split even" },
      wide(
        el("h2", {}, "Brokers"),
        el(
          "div",
          { class: "scroll-x" },
          el(
            "table",
            { class: "brokers" },
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                ["Broker", "Busy", "In /s", "Out /s", "Waiting"].map((name, at) =>
                  el("th", { scope: "col", class: at > 1 ? "number" : null }, name),
                ),
              ),
            ),
            brokers,
          ),
        ),
      ),
      wide(el("div", { class: "row between" }, el("h2", {}, "Last events"), pause), feed),
    ),
  );
  put(feed, world.events.slice(0, SHOWN).map(line));
  if (!world.events.length)
    feed.append(
      el(
        "li",
        { class: "empty" },
        "Nothing was published since this page was opened. Publish from the Network view, or with meetpoint pub.",
      ),
    );
  world.addEventListener(
    "live",
    (event) => {
      if (event.detail.length) feed.querySelector(".empty")?.remove();
      update(event.detail);
    },
    { signal: stop.signal },
  );
  update(null);
  return () => stop.abort();
}

function tile(name, says) {
  const value = el("p", { class: "figure" }, "–");
  const note = el("p", { class: "soft tiny" }, says);
  const chart = el("div", { class: "chart" });
  const node = el("section", { class: "card tile" }, el("h2", {}, name), value, note, chart);
  return {
    node,
    set(text, values, said = says) {
      setText(value, text);
      setText(note, said);
      put(chart, spark(values));
    },
  };
}

function line(event) {
  return el(
    "li",
    { class: event.matched ? "hit" : null },
    el("span", { class: "when" }, clock(event.time)),
    chips(world.ranked(event.attributes), { most: 4 }),
    event.matched
      ? el("span", { class: "met" }, `met ${count(event.matched)}`)
      : el("span", { class: "met soft", role: "img", "aria-label": "met none" }, "–"),
  );
}
