// Write a filter, see at once what is wrong with it and what it would have accepted, then subscribe.

import { inWords, postJson } from "../api.js";
import { bar, moment, timeline } from "../charts.js";
import { announce, el, put } from "../dom.js";
import { chips, filterText, namesIn } from "../filters.js";
import { mine } from "../mine.js";
import { ago, clock, count, many } from "../values.js";
import { world } from "../world.js";

const TYPING_MS = 250;
const SHOWN = 8;
const AGAIN_MS = 3000;
const EXAMPLES = [
  "dep_delay > 60 AND origin = 'JFK'",
  "carrier IN ('UA', 'AA') AND distance BETWEEN 500 AND 1500",
  "tailnum LIKE 'N5%' OR dep_time IS NULL",
];
const EXAMPLE_LENGTH = 45;
const DRAFT = "meetpoint-draft";

export function mount(root, parameters) {
  const page = new Page(root, parameters.get("filter"));
  return () => page.leave();
}

class Page {
  #stop = new AbortController();
  #turn = 0;
  #timer = null;
  #checked = 0;
  #isGood = null;
  #isStale = false;

  constructor(root, given) {
    this.text = el("textarea", {
      id: "filter",
      rows: "3",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      "aria-describedby": "verdict",
      placeholder: "dep_delay > 60 AND origin = 'JFK'",
    });
    this.text.value = given ?? draft() ?? examples()[0];
    this.verdict = el("div", { id: "verdict", class: "verdict" });
    this.recent = el("section", { class: "card", "aria-labelledby": "recent-title" });
    this.hours = el(
      "select",
      { "aria-label": "How much history" },
      [
        ["1", "last hour"],
        ["24", "last day"],
        ["168", "last week"],
        ["8784", "last year"],
      ].map(([value, label]) => el("option", { value }, label)),
    );
    this.hours.value = "24";
    this.backtestButton = el("button", { type: "button", onclick: () => void this.#backtest() }, "Backtest");
    this.history = el(
      "div",
      { class: "history", "aria-live": "polite" },
      el("p", { class: "soft" }, "How often would it have fired? Run it over what the brokers have archived."),
    );
    this.durable = el("input", {
      class: "durable",
      placeholder: "name, to make it durable",
      "aria-label": "Name, to make it durable",
      spellcheck: "false",
      autocomplete: "off",
    });
    this.subscribeButton = el(
      "button",
      { type: "button", class: "primary", onclick: () => this.#subscribe() },
      "Subscribe",
    );
    this.mine = el("div", { class: "mine" });
    put(
      root,
      el(
        "div",
        { class: "heading" },
        el("h1", {}, "Try it"),
        el(
          "p",
          { class: "lead" },
          "Write what you care about as in a WHERE clause. Nothing is subscribed until you say so.",
        ),
      ),
      el(
        "div",
        { class: "split even" },
        el(
          "div",
          { class: "side" },
          el(
            "section",
            { class: "card", "aria-labelledby": "filter-title" },
            el("h2", { id: "filter-title" }, el("label", { for: "filter" }, "Filter")),
            this.text,
            this.verdict,
            el(
              "div",
              { class: "examples" },
              el("span", { class: "soft tiny" }, "Examples"),
              examples().map((each) =>
                el(
                  "button",
                  { type: "button", class: "quiet small", onclick: () => this.#use(each) },
                  filterText(each),
                ),
              ),
            ),
            el("div", { class: "row subscribe" }, this.durable, this.subscribeButton),
          ),
          el(
            "section",
            { class: "card", "aria-labelledby": "history-title" },
            el(
              "div",
              { class: "row between" },
              el("h2", { id: "history-title" }, "On the archive"),
              el("div", { class: "row" }, this.hours, this.backtestButton),
            ),
            this.history,
          ),
        ),
        el("div", { class: "side" }, this.mine, this.recent),
      ),
    );
    this.text.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => {
        this.#timer = null;
        void this.#check();
      }, TYPING_MS);
    });
    world.addEventListener("live", (event) => this.#checkAgain(event.detail), { signal: this.#stop.signal });
    mine.addEventListener("change", (event) => this.#showMine(event.detail), { signal: this.#stop.signal });
    this.#showMine({});
    void this.#check();
  }

  leave() {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }

  #use(text) {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.text.value = text;
    this.text.focus();
    void this.#check();
  }

  // -- while it is typed -----------------------------------------------------------------------------------------------

  async #check() {
    const turn = ++this.#turn;
    this.#isStale = false;
    const filter = this.text.value;
    keepDraft(filter);
    if (!filter.trim()) {
      put(this.verdict, el("p", { class: "soft" }, "An empty filter says nothing. TRUE accepts every event."));
      this.#able(false);
      put(this.recent, el("h2", { id: "recent-title" }, "On recent events"));
      return;
    }
    let answer;
    try {
      answer = await postJson("api/try", { filter }, this.#stop.signal);
    } catch (error) {
      if (error.name === "AbortError" || turn !== this.#turn) return;
      put(this.verdict, el("p", { class: "wrong" }, inWords(error)));
      this.#able(false);
      return;
    }
    if (turn !== this.#turn) return;
    this.#checked = performance.now();
    this.#able(answer.ok);
    this.text.setAttribute("aria-invalid", String(!answer.ok));
    if (answer.ok) this.#showGood(answer);
    else this.#showBad(filter, answer.error);
  }

  // New events are tried too, but not while one types or reads how one of them was judged.
  #checkAgain(fresh) {
    const isRead = this.recent.querySelector("details[open]") !== null;
    if (fresh.length) this.#isStale = true;
    if (
      this.#isStale &&
      this.#isGood &&
      this.#timer === null &&
      !isRead &&
      performance.now() - this.#checked > AGAIN_MS
    )
      void this.#check();
  }

  #able(isGood) {
    if (this.#isGood === false && isGood) announce("The filter can be read");
    this.#isGood = isGood;
    this.subscribeButton.disabled = !isGood;
    this.backtestButton.disabled = !isGood;
  }

  #showBad(filter, error) {
    announce(error.message);
    put(
      this.verdict,
      pointer(filter, error),
      el("p", { class: "wrong" }, sentence(error.message)),
      error.hint && el("p", { class: "hint" }, sentence(error.hint)),
    );
    put(
      this.recent,
      el("h2", { id: "recent-title" }, "On recent events"),
      el("p", { class: "soft" }, "As soon as the filter can be read."),
    );
  }

  #showGood({ canonical, lint, recent, explained }) {
    const filter = this.text.value.trim();
    put(
      this.verdict,
      el(
        "p",
        { class: "right" },
        "Good. ",
        recent.of
          ? `It accepts ${count(recent.matched)} of the last ${many(recent.of, "event")}.`
          : "There are no recent events to try it on.",
      ),
      (lint ?? []).map((each) =>
        el("p", { class: "odd" }, el("span", { class: "badge odd" }, each.kind), " ", sentence(each.message)),
      ),
      canonical &&
        canonical !== filter &&
        el("p", { class: "canonical" }, el("span", { class: "soft" }, "In short: "), filterText(canonical)),
    );
    const asked = namesIn(filter);
    put(
      this.recent,
      el("h2", { id: "recent-title" }, "On recent events"),
      recent.of > 0 &&
        el(
          "div",
          { class: "share" },
          bar(recent.matched / recent.of, `${recent.matched} of ${recent.of}`),
          el("span", {}, `${count(recent.matched)} of ${count(recent.of)} accepted`),
        ),
      explained.length
        ? el(
            "ul",
            { class: "explained" },
            sorted(explained).map((each) => explainedLine(each, asked)),
          )
        : el("p", { class: "soft" }, "When events are published, they are explained here, one by one."),
    );
  }

  // -- the archive -----------------------------------------------------------------------------------------------------

  async #backtest() {
    const filter = this.text.value;
    this.backtestButton.disabled = true;
    put(this.history, el("p", { class: "soft" }, "Reading the archive…"));
    try {
      this.#showHistory(await postJson("api/backtest", { filter, hours: Number(this.hours.value) }, this.#stop.signal));
    } catch (error) {
      if (error.name !== "AbortError") put(this.history, el("p", { class: "wrong" }, inWords(error)));
    } finally {
      this.backtestButton.disabled = false;
    }
  }

  #showHistory({ hits, of, from, to, timeline: buckets, near_misses: misses, note }) {
    const most = Math.max(1, ...misses.map((each) => each.count));
    put(
      this.history,
      el("p", { class: "figure" }, count(hits), el("span", { class: "unit" }, ` of ${many(of, "event")}`)),
      el(
        "p",
        { class: "soft" },
        from && to ? `Accepted between ${moment(from)} and ${moment(to)}.` : "The archive holds nothing in that time.",
      ),
      note && el("p", { class: "soft" }, sentence(note)),
      buckets.length > 0 && timeline(buckets),
      misses.length > 0 && [
        el("h3", {}, "Near misses"),
        el("p", { class: "soft tiny" }, "Events that it would accept if only this were left out."),
        el(
          "ul",
          { class: "misses" },
          misses
            .slice(0, 6)
            .map((each) =>
              el(
                "li",
                {},
                filterText(each.why),
                bar(each.count / most),
                el("span", { class: "number" }, count(each.count)),
              ),
            ),
        ),
      ],
    );
  }

  // -- subscribing -----------------------------------------------------------------------------------------------------

  #subscribe() {
    mine.add(this.text.value.trim(), this.durable.value.trim());
    this.durable.value = "";
    announce("Subscribed; what matches appears here");
  }

  #showMine({ each, event }) {
    if (event) announce(`An event for ${each.durable || "your subscription"}`);
    put(
      this.mine,
      mine.all.map((one) =>
        el(
          "section",
          { class: "card subscribed", "aria-label": `Your subscription ${one.durable}` },
          el(
            "div",
            { class: "row between" },
            el(
              "h2",
              {},
              one.durable || "Your subscription",
              el(
                "span",
                { class: `badge ${one.state === "live" ? "ready" : "away"}` },
                one.state === "live" ? "subscribed" : one.state,
              ),
            ),
            el(
              "button",
              { type: "button", class: "small", onclick: () => mine.end(one) },
              one.durable ? "Close" : "End",
            ),
          ),
          filterText(one.filter),
          one.trouble && el("p", { class: "wrong" }, one.trouble),
          el(
            "p",
            { class: "soft tiny" },
            one.count
              ? `${many(one.count, "event")} came, the last ${ago((Date.now() - one.events[0].at) / 1000)}.`
              : "Waiting for the first event that matches.",
          ),
          one.events.length > 0 &&
            el(
              "ol",
              { class: "feed short" },
              one.events
                .slice(0, 5)
                .map((got) =>
                  el(
                    "li",
                    { class: "hit" },
                    el("span", { class: "when" }, clock(got.at)),
                    chips(world.ranked(got.attributes), { first: namesIn(one.filter), most: 4 }),
                  ),
                ),
            ),
        ),
      ),
    );
  }
}

// The filter's line with the mistake under it.
function pointer(filter, error) {
  if (error.at === null || error.at === undefined) return null;
  const begin = Math.min(error.at, filter.length);
  const end = Math.min(Math.max(begin + 1, begin + (error.length ?? 1)), Math.max(filter.length, begin + 1));
  return el(
    "pre",
    { class: "pointer" },
    filter.slice(Math.max(0, begin - 40), begin),
    el("mark", {}, filter.slice(begin, end) || " "),
    filter.slice(end, end + 40),
  );
}

// Filters of others that are not long, which fit what is published here; else some that fit the flights of make up.
function examples() {
  const texts = [...new Set(world.subscriptions.map((each) => each.filter))].filter((text) => text.length < 90);
  const oddity = (text) => Math.abs(text.length - EXAMPLE_LENGTH);
  return texts.length < 3 ? EXAMPLES : texts.sort((a, b) => oddity(a) - oddity(b)).slice(0, 3);
}

// Some that are accepted and some that are not, rather than the newest only.
function sorted(explained) {
  const yes = explained.filter((each) => each.accepts);
  const no = explained.filter((each) => !each.accepts);
  const half = SHOWN / 2;
  return [...yes.slice(0, Math.max(half, SHOWN - no.length)), ...no.slice(0, Math.max(half, SHOWN - yes.length))];
}

function explainedLine({ event, accepts, why }, asked) {
  const [verdict, ...tree] = why;
  return el(
    "li",
    { class: accepts ? "yes" : "no" },
    el(
      "span",
      { class: "mark", role: "img", "aria-label": accepts ? "accepted" : "not accepted" },
      accepts ? "✓" : "✗",
    ),
    el(
      "div",
      {},
      chips(world.ranked(event.attributes), { first: asked, most: Math.max(3, Math.min(6, asked.size)) }),
      el("p", { class: "reason" }, verdict.replace(/^[✓✗?] (not )?accepted: /, "")),
      tree.length > 1 &&
        el("details", {}, el("summary", {}, "step by step"), el("pre", { class: "why" }, tree.join("\n"))),
    ),
  );
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?…:]$/.test(text) ? "" : ".");

function draft() {
  try {
    return sessionStorage.getItem(DRAFT);
  } catch {
    return null;
  }
}

function keepDraft(text) {
  try {
    sessionStorage.setItem(DRAFT, text);
  } catch {
    // It is only a convenience.
  }
}
