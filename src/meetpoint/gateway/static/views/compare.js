// The report of the experiments, as it was made: five papers' claims, and what came of them here.

import { getJson, inWords } from "../api.js";
import { el, put } from "../dom.js";

export function mount(root) {
  const stop = new AbortController();
  const place = el("div", { class: "report" }, el("p", { class: "soft" }, "Looking for the report…"));
  put(
    root,
    el(
      "div",
      { class: "heading row between" },
      el(
        "div",
        {},
        el("h1", {}, "Compare"),
        el(
          "p",
          { class: "lead" },
          "How events can find subscriptions: the schemes of five papers and ours, measured on one code base.",
        ),
      ),
      el(
        "a",
        { class: "button", href: "report/index.html", target: "_blank", rel: "noopener", hidden: true },
        "Open on its own",
      ),
    ),
    place,
  );
  void find(root, place, stop.signal);
  return () => stop.abort();
}

async function find(root, place, signal) {
  try {
    const answer = await fetch("report/index.html", { credentials: "omit", signal });
    if (answer.ok) {
      root.querySelector("a.button").hidden = false;
      put(
        place,
        el("iframe", {
          class: "sheet-frame",
          src: "report/index.html",
          title: "The report of the experiments",
          sandbox: "allow-same-origin allow-popups",
        }),
      );
      return;
    }
    await getJson("report/index.html", signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    put(
      place,
      el(
        "section",
        { class: "card quiet-card" },
        el("h2", {}, "There is no report yet"),
        el("p", {}, inWords(error)),
        el(
          "p",
          {},
          "These two commands measure, about ten minutes, and write it. Run them in the folder in which meetpoint up runs, then come back to this page.",
        ),
        el("pre", {}, "meetpoint experiment run all --quick\nmeetpoint experiment report"),
      ),
    );
  }
}
