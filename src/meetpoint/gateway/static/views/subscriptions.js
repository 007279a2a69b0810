// Who asks for what, how much of it comes, and who hears nothing.

import { getJson, inWords } from "../api.js";
import { bar } from "../charts.js";
import { el, put, setText } from "../dom.js";
import { filterText } from "../filters.js";
import { ago, brief, count, many } from "../values.js";
import { world } from "../world.js";

const REFRESH_MS = 5000;
const TYPING_MS = 250;
const SORTS = [
  ["hot", "Hot", "most matches a minute first"],
  ["silent", "Silent", "longest without a match first"],
  ["name", "Name", "by name"],
];

export function mount(root, parameters) {
  const stop = new AbortController();
  let sort = parameters.get("sort") ?? "hot";
  let held = [];
  let pages = 1;
  let timer = null;
  let asked = 0;

  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "Search names, filters, owners",
    "aria-label": "Search subscriptions",
    spellcheck: "false",
    autocomplete: "off",
  });
  search.value = parameters.get("search") ?? "";
  const sorts = el(
    "div",
    { class: "segments", role: "group", "aria-label": "Order" },
    SORTS.map(([key, label, title]) =>
      el("button", { type: "button", title, "data-sort": key, onclick: () => choose(key) }, label),
    ),
  );
  const rows = el("tbody", {});
  const told = el("p", { class: "soft", role: "status" });
  const more = el(
    "button",
    {
      type: "button",
      hidden: true,
      onclick: () => {
        pages += 1;
        void ask();
      },
    },
    "Show more",
  );
  const head = ["Subscription", "Filter", "A minute", "Last match", "Waiting", "Served by"];

  function choose(key) {
    sort = key;
    pages = 1;
    void ask();
  }

  async function ask() {
    clearTimeout(timer);
    const turn = ++asked;
    for (const button of sorts.children) button.setAttribute("aria-pressed", String(button.dataset.sort === sort));
    try {
      const found = [];
      let after = "";
      let isMore = false;
      let total = 0;
      for (let page = 0; page < pages; page += 1) {
        const query = new URLSearchParams({ search: search.value, sort, after });
        const answer = await getJson(`api/subscriptions?${query}`, stop.signal);
        found.push(...answer.subscriptions);
        isMore = answer.more;
        total = answer.total;
        if (!isMore || !answer.subscriptions.length) break;
        after = answer.next;
      }
      if (turn !== asked) return;
      held = found;
      more.hidden = !isMore;
      show(total);
    } catch (error) {
      if (error.name === "AbortError" || turn !== asked) return;
      setText(told, inWords(error));
    }
    timer = setTimeout(() => void ask(), REFRESH_MS);
  }

  function show(total) {
    const most = Math.max(1, ...held.map((each) => each.per_minute ?? 0));
    const away = held.filter((each) => !each.is_present).length;
    const silent = held.filter((each) => each.delivered === 0).length;
    setText(
      told,
      held.length
        ? `${many(total, "subscription")}; ${total > held.length ? `of the ${count(held.length)} shown ` : ""}${count(silent)} never matched${away ? `, ${count(away)} with nobody there` : ""}.`
        : search.value
          ? "None has this in its name, filter or owner."
          : "Nobody has subscribed yet. Write a filter in Try it, and subscribe with one click.",
    );
    put(
      rows,
      held.map((each) => row(each, most)),
    );
  }

  put(
    root,
    el(
      "div",
      { class: "heading" },
      el("h1", {}, "Subscriptions"),
      el("p", { class: "lead" }, "Each says what it cares about; the network brings it that and nothing else."),
    ),
    el(
      "section",
      { class: "card" },
      el("div", { class: "row between tools" }, search, sorts),
      told,
      el(
        "div",
        { class: "scroll-x" },
        el(
          "table",
          { class: "subscriptions" },
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              head.map((name) => el("th", { scope: "col" }, name)),
            ),
          ),
          rows,
        ),
      ),
      more,
    ),
  );
  let typing = null;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    pages = 1;
    typing = setTimeout(() => void ask(), TYPING_MS);
  });
  void ask();
  return () => {
    stop.abort();
    clearTimeout(timer);
    clearTimeout(typing);
  };
}

function row(each, most) {
  const state =
    each.delivered === 0
      ? ["silent", "never matched"]
      : (each.per_minute ?? 0) >= most * 0.5 && each.per_minute > 0
        ? ["hot", "hot"]
        : null;
  const labels = Object.entries(each.labels ?? {});
  const cell = (label, ...children) => el("td", { "data-label": label }, children);
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      el(
        "span",
        { class: "title", title: labels.map(([name, value]) => `${name}=${value}`).join(", ") || null },
        each.name,
      ),
      state && el("span", { class: `badge ${state[0]}` }, state[1]),
      !each.is_present && el("span", { class: "badge away", title: "What matches waits for it" }, "nobody there"),
      each.owner && !each.name.startsWith(each.owner) && el("span", { class: "soft tiny" }, each.owner),
    ),
    cell(
      "Filter",
      el(
        "a",
        {
          class: "filter-link",
          href: `#/try?filter=${encodeURIComponent(each.filter)}`,
          title: "Open in Try it",
          "data-focus": encodeURIComponent(each.name),
        },
        filterText(each.filter),
      ),
    ),
    cell(
      "A minute",
      el("span", {}, each.per_minute === null ? "–" : brief(each.per_minute)),
      bar((each.per_minute ?? 0) / most),
    ),
    cell("Last match", each.delivered && each.silent_s !== null ? ago(each.silent_s) : "–"),
    cell("Waiting", count(each.queued ?? 0)),
    cell("Served by", world.name(each.broker)),
  );
}
