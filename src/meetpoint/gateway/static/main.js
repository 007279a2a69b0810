// The frame around the views: which one is shown, whether the network answers, theme and token.

import { setToken, token } from "./api.js";
import { announce, el, icon, put, setText } from "./dom.js";
import * as compare from "./views/compare.js";
import * as live from "./views/live.js";
import * as network from "./views/network.js";
import * as nodes from "./views/nodes.js";
import * as subscriptions from "./views/subscriptions.js";
import * as tryIt from "./views/try.js";
import { world } from "./world.js";

const VIEWS = [
  { name: "network", label: "Network", short: "Network", view: network },
  { name: "live", label: "Live", short: "Live", view: live },
  { name: "subscriptions", label: "Subscriptions", short: "Subs", view: subscriptions },
  { name: "try", label: "Try it", short: "Try it", view: tryIt },
  { name: "compare", label: "Compare", short: "Compare", view: compare },
  { name: "nodes", label: "Nodes", short: "Nodes", view: nodes },
];

const main = document.getElementById("main");
const nav = document.querySelector("nav.tabs");
let leave = null;
let shown = null;

function readHash() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: path, parameters: new URLSearchParams(query ?? "") };
}

function route() {
  if (location.hash === "#main") return;
  const { name, parameters } = readHash();
  const chosen = VIEWS.find((each) => each.name === name) ?? VIEWS[0];
  const isFirst = shown === null;
  shown = chosen;
  leave?.();
  for (const link of nav.children) {
    if (link.dataset.view === chosen.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${chosen.label} · Meetpoint`;
  main.replaceChildren();
  main.className = `view-${chosen.name}`;
  leave = chosen.view.mount(main, parameters);
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
    announce(chosen.label);
  }
}

for (const each of VIEWS) {
  nav.append(
    el(
      "a",
      { href: `#/${each.name}`, "data-view": each.name },
      icon(each.name),
      el("span", { class: "full" }, each.label),
      el("span", { class: "short", "aria-hidden": "true" }, each.short),
    ),
  );
}

nav.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const links = [...nav.children];
  const at = links.indexOf(document.activeElement);
  links[(at + step + links.length) % links.length]?.focus();
  event.preventDefault();
});

// -- theme -----------------------------------------------------------------------------------------------------------

const themeButton = document.getElementById("theme-button");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";

function showTheme() {
  put(themeButton, icon(isDark() ? "sun" : "moon"));
  const label = isDark() ? "Use light colours" : "Use dark colours";
  themeButton.setAttribute("aria-label", label);
  themeButton.title = label;
}

themeButton.addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("meetpoint-theme", theme);
  } catch {
    // It lasts as long as the page.
  }
  showTheme();
});
systemDark.addEventListener("change", showTheme);
showTheme();

// -- token -----------------------------------------------------------------------------------------------------------

const tokenButton = document.getElementById("token-button");
put(tokenButton, icon("key"));

tokenButton.addEventListener("click", () => {
  const field = el("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "eyJhbGciOi…",
  });
  field.value = token();
  const keep = (text) => {
    setToken(text);
    dialog.close();
    world.restart();
    route();
    announce(text ? "Token kept for this tab" : "Token forgotten");
  };
  const dialog = el(
    "dialog",
    { class: "sheet", "aria-labelledby": "token-title", onclose: () => dialog.remove() },
    el("h2", { id: "token-title" }, "Access token"),
    el(
      "p",
      { class: "soft" },
      "A secured network wants to know who you are. Paste a token of meetpoint token issue; it is sent to this gateway only, and forgotten when the tab is closed.",
    ),
    el("label", { for: "token" }, "Token"),
    field,
    el(
      "div",
      { class: "row end" },
      el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
      token() && el("button", { type: "button", class: "quiet", onclick: () => keep("") }, "Forget it"),
      el("button", { type: "button", class: "primary", onclick: () => keep(field.value) }, "Use it"),
    ),
  );
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") keep(field.value);
  });
  document.body.append(dialog);
  dialog.showModal();
});

// -- does it answer --------------------------------------------------------------------------------------------------

const pill = document.getElementById("connection");
const trouble = document.getElementById("trouble");
let refusal = "";

function showConnection() {
  const words = {
    live: "live",
    connecting: "connecting",
    reconnecting: "reconnecting",
    away: "no answer",
    locked: "token needed",
  };
  pill.dataset.state = world.state;
  setText(pill.lastElementChild, words[world.state]);
  const again = {
    reconnecting: " Trying again by itself; what you see is from before.",
    away: " Trying again by itself.",
  };
  const wrong = world.trouble ? world.trouble + (again[world.state] ?? "") : refusal;
  trouble.hidden = !wrong;
  setText(trouble, wrong);
}

world.addEventListener("connection", () => {
  refusal = "";
  showConnection();
});
world.addEventListener("network", () => {
  if (!world.last?.problem) refusal = "";
  const { brokers, scheme, overlay } = world.network;
  pill.title = `${brokers.length} brokers, scheme ${scheme} on ${overlay}`;
  showConnection();
});
world.addEventListener("refused", (event) => {
  refusal = event.detail;
  showConnection();
});

showConnection();
world.start();
addEventListener("hashchange", route);
route();
