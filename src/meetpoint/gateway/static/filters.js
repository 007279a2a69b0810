// A filter's text with its words, texts and numbers told apart, and an event in few words.

import { el } from "./dom.js";
import { kindOf, show } from "./values.js";

const PIECES =
  /('(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|\\.)*")|(`(?:[^`]|``)*`)|\b(AND|OR|NOT|BETWEEN|IN|IS|LIKE|NULL|TRUE|FALSE|TIMESTAMP|ESCAPE)\b|(-?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b)/gi;
const CLASSES = [null, "text", "name", "word", "number"];

export function filterText(text) {
  const code = el("code", { class: "filter" });
  let end = 0;
  for (const match of text.matchAll(PIECES)) {
    const kind = match.findIndex((group, at) => at > 0 && group !== undefined);
    if (match.index > end) code.append(text.slice(end, match.index));
    code.append(el("span", { class: CLASSES[kind] }, match[0]));
    end = match.index + match[0].length;
  }
  code.append(text.slice(end));
  return code;
}

// The attributes that a filter asks for, by the first part of their paths, so that they can be shown first.
export function namesIn(text) {
  const names = new Set();
  const bare = text.replace(PIECES, (_piece, _quoted, ticked) => {
    if (ticked) names.add(ticked.slice(1, -1).replaceAll("``", "`"));
    return " ";
  });
  for (const [path] of bare.matchAll(/[\p{L}_][\p{L}\p{N}_.]*(?![\p{L}\p{N}_.]|\s*\()/gu))
    names.add(path.split(".")[0]);
  return names;
}

// Attributes as an object, or as entries in the order in which they shall be shown.
export function chips(attributes, { first = new Set(), most = 8 } = {}) {
  const entries = Array.isArray(attributes)
    ? attributes
    : Object.entries(attributes).filter(([, value]) => value !== null);
  entries.sort((a, b) => Number(first.has(b[0])) - Number(first.has(a[0])));
  const shown = entries
    .slice(0, most)
    .map(([name, value]) =>
      el(
        "span",
        { class: `chip${first.has(name) ? " asked" : ""}` },
        el("span", { class: "key" }, name),
        el("span", { class: `value ${kindOf(value) === "number" ? "number" : ""}` }, show(value)),
      ),
    );
  const rest = entries.length - shown.length;
  return el("span", { class: "chips" }, shown, rest > 0 && el("span", { class: "chip more" }, `+${rest}`));
}
