// Elements from values. Text is only ever set as text: no string becomes markup here or anywhere else.

const SVG = "http://www.w3.org/2000/svg";

const present = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...present(children));
  return node;
}

export const el = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);

export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

const ICONS = {
  network:
    "M12 5.5a2 2 0 1 0 0-.01M5 17.5a2 2 0 1 0 0-.01M19 17.5a2 2 0 1 0 0-.01M11 7.2 6 15.6M13 7.2l5 8.4M7.2 17.5h9.6",
  live: "M3 13h4l3-8 4 14 3-6h4",
  subscriptions: "M4 6h16M4 12h11M4 18h7M18 15v6M15 18h6",
  try: "M9 4h6M10 4v6l-5 9h14l-5-9V4M8 15h8",
  compare: "M5 20V10M12 20V4M19 20v-7",
  nodes: "M4 5h16v5H4zM4 14h16v5H4zM8 7.5h.01M8 16.5h.01",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M19 5l-1.4 1.4M6.4 17.6 5 19",
  moon: "M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5z",
  key: "M4 15.5a4 4 0 1 0 8 0 4 4 0 0 0-8 0M10.8 12.7 20 3.5M16.2 7.3l3 3",
  close: "M6 6l12 12M18 6 6 18",
  plus: "M12 5v14M5 12h14",
};

export const icon = (name) =>
  svg(
    "svg",
    { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: ICONS[name] }),
  );

export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

// What is in a node from now on; what is absent (null, false) is left out. Whoever goes by keyboard stays where it was:
// at the first of the words in data-focus that something new has as well.
export function put(node, ...children) {
  const at = document.activeElement;
  const words = at !== node && node.contains(at) ? (at.dataset.focus ?? "").split(" ").filter(Boolean) : [];
  node.replaceChildren(...present(children));
  for (const word of words) {
    const found = node.querySelector(`[data-focus~="${CSS.escape(word)}"]`);
    if (!found) continue;
    found.focus({ preventScroll: true });
    break;
  }
  return node;
}

// Only where it changed, so that nothing is read aloud twice.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const prefersStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
