// Brokers come, leave and crash, and the others close the gap: done by buttons, where the gateway runs the brokers.

import { inWords, postJson } from "../api.js";
import { Drawing } from "../drawing.js";
import { announce, el, icon, put, setText } from "../dom.js";
import { clock, many } from "../values.js";
import { health, world } from "../world.js";

const LOG_MAX = 60;
const log = [];
let before = null;
let brokenSince = null;

// What changed is written down whichever view is shown.
world.addEventListener("network", () => {
  const network = world.network;
  const now = new Map(network.brokers.map((each) => [each.id, { state: each.state, name: world.name(each.id) }]));
  const { isWhole, away } = health(network);
  if (before !== null) {
    for (const [id, { state, name }] of now) {
      const old = before.get(id);
      if (!old) note("joined", `Broker ${name} joined the network.`);
      else if (old.state !== state) note(state, `Broker ${name} ${WORDS[state] ?? `is ${state}`}.`);
    }
    for (const [id, { name }] of before)
      if (!now.has(id)) note("left", `Broker ${name} is no longer part of the network.`);
  }
  before = now;
  if (!isWhole && brokenSince === null) {
    brokenSince = performance.now();
    note("broken", "Some links lead nowhere: brokers are looking for their new neighbours.");
  } else if (isWhole && brokenSince !== null) {
    note(
      "healed",
      `Healed: every link leads to a broker that serves, after ${((performance.now() - brokenSince) / 1000).toFixed(1)} s${away.length ? `; ${many(away.length, "broker")} still away` : ""}.`,
    );
    brokenSince = null;
  }
});

const WORDS = {
  new: "starts",
  starting: "starts",
  joining: "looks for its place",
  recovering: "gets back what it had",
  ready: "serves",
  leaving: "hands over what it has",
  left: "has left",
  silent: "does not answer",
};

function note(kind, text) {
  log.unshift({ at: Date.now(), kind, text });
  log.length = Math.min(log.length, LOG_MAX);
  world.dispatchEvent(new CustomEvent("story"));
}

export function mount(root) {
  const stop = new AbortController();
  const calm = world.watchClosely();
  const drawing = new Drawing({});
  const status = el("p", { class: "health", role: "status" });
  const rows = el("ul", { class: "nodes" });
  const trouble = el("p", { class: "note", role: "alert" });
  const story = el("ol", { class: "steps log", "aria-label": "What happened" });
  const join = el(
    "button",
    { type: "button", class: "primary", onclick: () => act("join", null) },
    icon("plus"),
    "Join a broker",
  );
  const why = el("p", { class: "soft" });
  const busy = new Set();
  let signature = "";

  async function act(action, broker) {
    const key = broker?.id ?? "";
    busy.add(key);
    update(true);
    setText(trouble, "");
    try {
      await postJson("api/nodes", broker ? { action, broker: broker.address } : { action }, stop.signal);
      announce(`${action} was done`);
    } catch (error) {
      if (error.name !== "AbortError") setText(trouble, inWords(error));
    } finally {
      busy.delete(key);
      if (!stop.signal.aborted) {
        world.again();
        update(true);
      }
    }
  }

  function askToLeave(broker) {
    const dialog = el(
      "dialog",
      { class: "sheet", "aria-labelledby": "leave-title", onclose: () => dialog.remove() },
      el("h2", { id: "leave-title" }, `Let broker ${world.name(broker.id)} leave?`),
      el(
        "p",
        { class: "soft" },
        "It hands over everything it has to the others, stops, and is not started again. Nothing is lost.",
      ),
      el(
        "div",
        { class: "row end" },
        el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
        el(
          "button",
          {
            type: "button",
            class: "primary",
            onclick: () => {
              dialog.close();
              void act("leave", broker);
            },
          },
          "Let it leave",
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  }

  function update(isForced = false) {
    const network = world.network;
    if (network === null) return;
    drawing.update(network, network.brokers.some((each) => each.regions?.length) ? "cube" : "ring");
    const { ready, away, isWhole } = health(network);
    status.dataset.state = !isWhole ? "healing" : away.length ? "reduced" : "whole";
    setText(
      status,
      !isWhole
        ? "Healing: links still lead to brokers that are gone."
        : away.length
          ? `Whole again with ${many(ready.length, "broker")}; ${many(away.length, "broker")} away.`
          : `Whole: ${many(ready.length, "broker")} serve${ready.length === 1 ? "s" : ""}, and every link leads to one of them.`,
    );
    join.hidden = !network.can_manage;
    setText(
      why,
      network.can_manage ? "" : "Only a network that meetpoint up runs on this machine can be changed from here.",
    );
    const fresh = JSON.stringify([network.can_manage, network.brokers.map((each) => [each.id, each.state]), [...busy]]);
    if (fresh === signature && !isForced) return;
    signature = fresh;
    put(
      rows,
      network.brokers.map((each) => row(each, network.can_manage)),
    );
  }

  function row(broker, canManage) {
    const isBusy = busy.has(broker.id);
    const name = world.name(broker.id);
    const button = (label, kind, action, word = "act") =>
      el(
        "button",
        {
          type: "button",
          class: `small ${kind}`,
          "aria-disabled": isBusy ? "true" : null, // disabled, it would lose the keyboard
          "aria-label": `${label} ${name}`,
          "data-focus": `${word}-${broker.id} ${broker.id}`,
          onclick: () => isBusy || action(),
        },
        label,
      );
    const isServing = broker.state === "ready";
    return el(
      "li",
      { "data-state": broker.state, "data-focus": broker.id, tabindex: "-1" },
      el("span", { class: "title" }, name),
      el("span", { class: `badge ${broker.state}` }, isBusy ? "working…" : broker.state),
      el("span", { class: "soft address" }, broker.address),
      canManage &&
        el(
          "span",
          { class: "actions" },
          isServing && button("Crash", "danger", () => void act("crash", broker)),
          isServing && button("Leave", "", () => askToLeave(broker), "leave"),
          broker.state === "silent" && button("Start", "primary", () => void act("start", broker)),
        ),
    );
  }

  const tell = () =>
    put(
      story,
      log.length
        ? log.map((each) =>
            el(
              "li",
              { class: `come ${each.kind}` },
              el("span", { class: "when" }, clock(each.at)),
              el("span", { class: "what" }, each.text),
            ),
          )
        : el("li", { class: "empty" }, "Nothing yet. Crash a broker and watch the others close the gap."),
    );

  put(
    root,
    el(
      "div",
      { class: "heading" },
      el("h1", {}, "Nodes"),
      el(
        "p",
        { class: "lead" },
        "Brokers look after each other: what one held, others have too. Take one away and see.",
      ),
    ),
    el(
      "div",
      { class: "split even" },
      el(
        "section",
        { class: "card picture", "aria-label": "Drawing" },
        status,
        el("div", { class: "stage small-stage" }, drawing.node),
      ),
      el(
        "div",
        { class: "side" },
        el(
          "section",
          { class: "card" },
          el("div", { class: "row between" }, el("h2", {}, "Brokers"), join),
          why,
          trouble,
          rows,
        ),
        el("section", { class: "card" }, el("h2", {}, "What happened"), story),
      ),
    ),
  );
  world.addEventListener("network", () => update(), { signal: stop.signal });
  world.addEventListener("story", tell, { signal: stop.signal });
  update();
  tell();
  return () => {
    stop.abort();
    calm();
  };
}
