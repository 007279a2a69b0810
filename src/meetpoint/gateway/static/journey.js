// The way of one event: what brokers recorded of it, put in order, as waves that can be shown one after another.

import { many, ms } from "./values.js";
import { world } from "./world.js";

// What a message is for, by the gateway's word for its kind.
const KINDS = {
  visit: "to see who asked for it",
  bring: "to those who may want it",
  flood: "passed on to everyone",
  spread: "passed on along a tree",
  collect: "to ask whom its values concern",
  chain: "to ask further",
  tell: "to those who want it",
  walk: "on to the next who wants it",
  match: "to the region it lies in",
  handle: "to look among its subsets",
  hand: "along the filters",
  serve: "to those who want it",
};

export class Journey {
  constructor(path) {
    this.id = path.id;
    this.isDone = path.done;
    this.silent = path.silent ?? [];
    this.hops = order(path.hops);
    this.met = path.met ?? [];
    this.visited = path.visited ?? [];
    this.dropped = folded(path.dropped ?? []);
    this.delivered = path.delivered ?? [];
    this.origin =
      path.at ??
      this.hops.find((hop) => hop.wave === 1)?.from ??
      this.met[0]?.broker ??
      this.delivered[0]?.broker ??
      null;
    this.#arrive();
    this.waves = Math.max(0, ...this.hops.map((hop) => hop.wave), ...this.stops.map((stop) => stop.wave));
    this.shown = 0;
  }

  // When each broker was first reached, and with it what happened there.
  #arrive() {
    this.firstWave = new Map();
    if (this.origin !== null) this.firstWave.set(this.origin, 0);
    for (const hop of this.hops) {
      if (!this.firstWave.has(hop.to)) this.firstWave.set(hop.to, hop.wave);
      this.firstWave.set(hop.to, Math.min(this.firstWave.get(hop.to), hop.wave));
    }
    const waveOf = (broker, at) => {
      const came = this.hops.filter((hop) => hop.to === broker && hop.ms <= at + 0.001).map((hop) => hop.wave);
      return came.length ? Math.max(...came) : (this.firstWave.get(broker) ?? 0);
    };
    const stop = (kind) => (each) => ({ ...each, kind, wave: waveOf(each.broker, each.ms) });
    this.stops = [
      ...this.visited.map(stop("visited")),
      ...this.met.map(stop("met")),
      ...this.dropped.map(stop("dropped")),
      ...this.delivered.map(stop("delivered")),
    ].sort((a, b) => a.wave - b.wave || (a.ms ?? 0) - (b.ms ?? 0));
  }

  // How much is known of it.
  get size() {
    return this.hops.length + this.stops.length;
  }

  marks(broker, wave) {
    const marks = [];
    if (broker === this.origin) marks.push("origin");
    if ((this.firstWave.get(broker) ?? Infinity) <= wave) marks.push("visited");
    for (const stop of this.stops) {
      if (stop.broker !== broker || stop.wave > wave) continue;
      if (stop.kind === "met" && stop.matched.length) marks.push("met");
      if (stop.kind === "dropped") marks.push("dropped");
      if (stop.kind === "delivered") marks.push("delivered");
    }
    return [...new Set(marks)].join(" ");
  }

  // Subscriptions of a broker that it has met; those whose subscriber is away have it waiting for them.
  reached(broker, wave) {
    const here = this.stops.filter((stop) => stop.broker === broker && stop.wave <= wave);
    return new Set(
      here.flatMap((stop) => (stop.kind === "met" ? stop.matched : stop.kind === "delivered" ? [stop.name] : [])),
    );
  }

  // As sentences, each with the wave it belongs to.
  story() {
    const lines = [];
    if (this.origin !== null)
      lines.push({ wave: 0, kind: "publish", ms: 0, text: "Published at", broker: this.origin });
    for (const hop of this.hops) {
      lines.push({
        wave: hop.wave,
        kind: "hop",
        ms: hop.ms,
        from: hop.from,
        broker: hop.to,
        text: KINDS[hop.kind] ?? hop.kind,
      });
    }
    for (const stop of this.stops) lines.push({ ...stop, text: stopText(stop) });
    const rank = { publish: 0, hop: 1, visited: 2, met: 3, dropped: 4, delivered: 5 };
    return lines.sort((a, b) => a.wave - b.wave || rank[a.kind] - rank[b.kind] || (a.ms ?? 0) - (b.ms ?? 0));
  }

  summary() {
    const brokers = new Set([this.origin, ...this.hops.map((hop) => hop.to)].filter((each) => each !== null));
    const all = world.network?.brokers.length ?? brokers.size;
    const names = new Set([...this.met.flatMap((each) => each.matched), ...this.delivered.map((each) => each.name)]);
    const last = Math.max(0, ...this.delivered.map((each) => each.ms ?? 0), ...this.met.map((each) => each.ms ?? 0));
    const untouched = all - brokers.size;
    const met = names.size ? `Met ${many(names.size, "subscription")}` : "Nobody asked for it: it met no subscription";
    const when = names.size && last ? ` within ${ms(last)}` : "";
    const rest =
      untouched > 0 ? `${untouched} of ${many(all, "broker")} never saw it.` : `It came to all ${many(all, "broker")}.`;
    return { names: names.size, text: `${met}${when}, with ${many(this.hops.length, "message")}. ${rest}` };
  }
}

function stopText(stop) {
  if (stop.kind === "met") {
    const looked =
      stop.looked_at === null || stop.looked_at === undefined
        ? ""
        : ` (${many(stop.looked_at, "subscription")} looked at)`;
    return stop.matched.length
      ? `meets ${many(stop.matched.length, "subscription")}${looked} at`
      : `meets none${looked} at`;
  }
  if (stop.kind === "visited") return stop.what;
  if (stop.kind === "dropped") return stop.times > 1 ? `${stop.why} (${stop.times} times)` : stop.why;
  return "is delivered from";
}

// What was tried again and again is one thing: where it first failed, and how often.
function folded(dropped) {
  const found = new Map();
  for (const each of dropped) {
    const key = `${each.broker} ${each.why}`;
    const first = found.get(key);
    if (first) first.times += 1;
    else found.set(key, { ...each, times: 1 });
  }
  return [...found.values()];
}

// Hops with the wave in which they are shown: one after whatever brought the event to where it starts.
function order(given) {
  const hops = [...given].sort((a, b) => a.ms - b.ms || a.number - b.number).map((hop) => ({ ...hop }));
  const byNumber = new Map(hops.map((hop) => [hop.number, hop]));
  const waveOf = (hop, depth = 0) => {
    if (hop.wave) return hop.wave;
    let before = hop.parent === null || hop.parent === undefined ? null : (byNumber.get(hop.parent) ?? null);
    if (before === null)
      before =
        hops.findLast(
          (other) => other.to === hop.from && other !== hop && other.ms <= hop.ms && other.number < hop.number,
        ) ?? null;
    hop.wave = before === null || depth > 200 ? 1 : waveOf(before, depth + 1) + 1;
    return hop.wave;
  };
  hops.forEach((hop) => waveOf(hop));
  return hops.sort((a, b) => a.wave - b.wave || a.ms - b.ms);
}
