// Small charts as SVG, redrawn whole: a few dozen points each.

import { svg } from "./dom.js";
import { brief, clock, count } from "./values.js";

const POINTS_MIN = 20;

const path = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// One line over the time that was seen; what is newest is at the right.
export function spark(values) {
  const points = Math.max(POINTS_MIN, values.length);
  const [width, height] = [240, 44];
  const most = Math.max(1e-9, ...values);
  const step = width / (points - 1);
  const first = points - values.length;
  const line = values.map((value, at) => [(first + at) * step, height - 3 - (value / most) * (height - 8)]);
  const picture = svg("svg", {
    class: "spark",
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  if (line.length > 1) {
    picture.append(
      svg("path", { class: "area", d: `${path(line)}L${line.at(-1)[0]} ${height}L${line[0][0]} ${height}Z` }),
      svg("path", { class: "line", d: path(line) }),
    );
  }
  return picture;
}

// Hits over time, with the first and the last moment written beneath.
export function timeline(buckets) {
  const width = Math.min(640, Math.max(280, document.documentElement.clientWidth - 60)); // so that words keep their size
  const [height, foot] = [150, 22];
  const most = Math.max(1, ...buckets.map((each) => each.hits));
  const step = width / Math.max(1, buckets.length);
  const bars = buckets.map((each, at) => {
    const tall = each.hits ? Math.max(2, (each.hits / most) * (height - 20)) : 0;
    return svg(
      "rect",
      {
        x: (at * step + Math.min(1.5, step * 0.1)).toFixed(2),
        y: (height - tall).toFixed(1),
        width: Math.max(0.8, step - Math.min(3, step * 0.2)).toFixed(2),
        height: tall.toFixed(1),
        rx: Math.min(3, step / 4),
      },
      svg("title", {}, `${moment(each.at)}: ${count(each.hits)}`),
    );
  });
  const from = buckets[0]?.at;
  const to = buckets.at(-1)?.at;
  return svg(
    "svg",
    {
      class: "timeline",
      viewBox: `0 0 ${width} ${height + foot}`,
      role: "img",
      "aria-label": `Hits over time, at most ${count(most)} at once`,
    },
    svg("line", { x1: 0, x2: width, y1: height + 0.5, y2: height + 0.5 }),
    bars,
    from && svg("text", { x: 0, y: height + 17 }, moment(from)),
    to && buckets.length > 1 && svg("text", { x: width, y: height + 17, "text-anchor": "end" }, moment(to)),
    svg("text", { x: width, y: 12, "text-anchor": "end" }, `most: ${brief(most)}`),
  );
}

export function moment(at) {
  const date = new Date(at);
  const today = new Date().toDateString() === date.toDateString();
  const day = date.toLocaleDateString("en-GB", {
    day: "numeric",
    month: "short",
    year: date.getFullYear() === new Date().getFullYear() ? undefined : "numeric",
  });
  return today ? clock(at) : `${day} ${clock(at).slice(0, 5)}`;
}

// How large a part is, as a bar of its own.
export function bar(part, label) {
  const fill = svg("rect", {
    class: "part",
    width: (Math.max(0, Math.min(1, part)) * 100).toFixed(1),
    height: 6,
    rx: 3,
  });
  return svg(
    "svg",
    {
      class: "bar",
      viewBox: "0 0 100 6",
      preserveAspectRatio: "none",
      role: label ? "img" : null,
      "aria-label": label,
      "aria-hidden": label ? null : "true",
    },
    svg("rect", { class: "whole", width: 100, height: 6, rx: 3 }),
    fill,
  );
}
