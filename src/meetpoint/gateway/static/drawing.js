// The network as a picture: brokers, their links, the subscriptions they serve, and an event on its way among them.

import { el, prefersStill, put, setText, svg } from "./dom.js";
import { CENTRE, SIZE, arc, cube, regions, ring, way } from "./layouts.js";
import { count, many } from "./values.js";
import { health, world } from "./world.js";

const DOTS_MAX = 7;
const WAVE_MS = 850;
const PAUSE_MS = 380;

export class Drawing {
  #layers = {};
  #brokers = new Map();
  #layout = null;
  #places = "";
  #onPick;
  #picked = null;
  #journey = null;
  #run = 0;
  #subscriptions = new Map();

  constructor({ onPick } = {}) {
    this.#onPick = onPick ?? (() => {});
    this.node = svg("svg", {
      class: "drawing",
      viewBox: `0 0 ${SIZE.width} ${SIZE.height}`,
      role: "group",
      "aria-label": "The brokers of the network and their links",
    });
    for (const name of ["base", "links", "trails", "brokers", "fliers"]) {
      this.#layers[name] = svg("g", { class: `layer-${name}` });
      this.node.append(this.#layers[name]);
    }
  }

  // Subscriptions by the id of their broker.
  setSubscriptions(byBroker) {
    this.#subscriptions = byBroker;
    if (world.network) this.update(world.network, this.#layout?.kind);
  }

  update(network, kind) {
    this.#layout = kind === "cube" ? cube(network.brokers) : ring(network.brokers);
    this.#drawBase(network);
    this.#drawLinks(network);
    this.#drawBrokers(network);
    const places = JSON.stringify([...this.#layout.at]);
    if (this.#journey && places !== this.#places) this.#placeTrails();
    this.#places = places;
  }

  #drawBase() {
    const { kind, radius } = this.#layout;
    put(
      this.#layers.base,
      kind === "ring" ? svg("circle", { class: "circle", cx: CENTRE.x, cy: CENTRE.y, r: radius }) : null,
    );
  }

  #drawLinks(network) {
    const { at, kind, radius } = this.#layout;
    const alive = new Set(network.brokers.filter((each) => each.state === "ready").map((each) => each.id));
    const drawn = new Map();
    const { ready } = health(network);
    for (const broker of network.brokers) {
      if (broker.state === "silent") continue;
      const after = ready[(ready.indexOf(broker) + 1) % ready.length];
      const next = broker.links.find(
        (link) => link.kind === "successor" || (link.kind === "leaf" && link.to === after?.id),
      );
      for (const link of broker.links) {
        const from = at.get(broker.id);
        const to = at.get(link.to);
        if (!to || link.to === broker.id || link.kind === "predecessor") continue;
        const isNear = link === next && kind === "ring";
        const key = isNear ? `${broker.id}>${link.to}` : [broker.id, link.to].sort().join("-");
        if (drawn.get(key)?.isNear || (drawn.has(key) && !isNear)) continue;
        const shape = isNear
          ? arc(from, to, radius)
          : kind === "ring"
            ? way(from, to, 0.5)
            : `M${from.x} ${from.y}L${to.x} ${to.y}`;
        drawn.set(key, {
          isNear,
          line: svg("path", {
            d: shape,
            class: `link ${isNear ? "near" : link.kind === "neighbour" ? "neighbour" : "far"}${alive.has(link.to) ? "" : " stale"}`,
            "data-from": broker.id,
            "data-to": link.to,
          }),
        });
      }
    }
    put(
      this.#layers.links,
      [...drawn.values()].map((each) => each.line),
    );
    this.#markPicked();
  }

  #drawBrokers(network) {
    const size = network.brokers.length > 40 ? 8 : network.brokers.length > 16 ? 13 : 21;
    for (const [id, held] of this.#brokers) {
      if (!this.#layout.at.has(id)) {
        held.group.remove();
        this.#brokers.delete(id);
      }
    }
    for (const broker of network.brokers) {
      const held = this.#brokers.get(broker.id) ?? this.#newBroker(broker.id);
      const point = this.#layout.at.get(broker.id);
      held.size = size;
      held.group.setAttribute("transform", `translate(${point.x.toFixed(1)} ${point.y.toFixed(1)})`);
      held.group.dataset.state = broker.state;
      held.group.style.setProperty("--load", `${Math.round((broker.load ?? 0) * 100)}%`);
      held.body.setAttribute("r", size);
      held.halo.setAttribute("r", size + 7);
      const mine = this.#subscriptions.get(broker.id) ?? [];
      const total = world.hasAll ? mine.length : Math.max(mine.length, broker.numbers?.subscriptions ?? 0);
      const name = world.name(broker.id);
      held.group.setAttribute(
        "aria-label",
        `Broker ${name}, ${broker.state}, load ${Math.round((broker.load ?? 0) * 100)} %, ${many(total, "subscription")}`,
      );
      const label =
        this.#layout.kind === "cube" && broker.regions?.length ? `${name} · ${broker.regions[0] || "all"}` : name;
      this.#drawAround(held, point, label, mine, total, network.brokers.length);
    }
  }

  #drawAround(held, point, name, mine, total, brokers) {
    const drawn = JSON.stringify([point, held.size, name, brokers, total, mine.map((each) => [each.name, each.filter])]);
    if (drawn === held.drawn) return;
    held.drawn = drawn;
    const along = { x: Math.cos(point.outward), y: Math.sin(point.outward) };
    const across = { x: -along.y, y: along.x };
    const shown = brokers > 40 ? [] : mine.slice(0, DOTS_MAX);
    const distance = held.size + 17;
    put(
      held.dots,
      shown.map((each, index) => {
        const aside = (index - (shown.length - 1) / 2) * 11;
        const back = (aside * aside) / 260;
        return svg(
          "circle",
          {
            class: "subscriber",
            r: 3.6,
            cx: (along.x * (distance - back) + across.x * aside).toFixed(1),
            cy: (along.y * (distance - back) + across.y * aside).toFixed(1),
            "data-name": each.name,
          },
          svg("title", {}, `${each.name}: ${each.filter}`),
        );
      }),
    );
    const outside = held.size + (shown.length ? 34 : 18) + Math.abs(along.y) * 6;
    const text = brokers > 24 ? "" : name;
    const more = total > shown.length && shown.length ? ` +${count(total - shown.length)}` : "";
    setText(held.label, text);
    setText(held.more, more);
    const anchor = Math.abs(along.x) < 0.35 ? "middle" : along.x > 0 ? "start" : "end";
    held.text.setAttribute("text-anchor", anchor);
    held.text.setAttribute("x", (along.x * outside).toFixed(1));
    held.text.setAttribute("y", (along.y * outside + 5).toFixed(1));
    if (this.#journey) this.show(this.#journey.shown);
  }

  #newBroker(id) {
    const halo = svg("circle", { class: "halo" });
    const body = svg("circle", { class: "body" });
    const cross = svg("path", { class: "cross", d: "M-6 -6L6 6M6 -6L-6 6" });
    const label = svg("tspan", { class: "name" });
    const more = svg("tspan", { class: "more" });
    const text = svg("text", {}, label, more);
    const dots = svg("g", {});
    const group = svg(
      "g",
      { class: "broker", tabindex: "0", role: "button", "data-id": id },
      halo,
      dots,
      body,
      cross,
      text,
    );
    const pick = () => this.pick(id);
    group.addEventListener("click", pick);
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pick();
      }
    });
    this.#layers.brokers.append(group);
    const held = { group, halo, body, label, more, text, dots, size: 21 };
    this.#brokers.set(id, held);
    return held;
  }

  pick(id) {
    this.#picked = this.#picked === id ? null : id;
    this.#markPicked();
    this.#onPick(this.#picked);
  }

  #markPicked() {
    this.node.classList.toggle("has-picked", this.#picked !== null);
    for (const [id, held] of this.#brokers) held.group.classList.toggle("picked", id === this.#picked);
    for (const line of this.#layers.links.children) {
      line.classList.toggle(
        "of-picked",
        this.#picked !== null && (line.dataset.from === this.#picked || line.dataset.to === this.#picked),
      );
    }
  }

  // -- a journey -------------------------------------------------------------------------------------------------------

  setJourney(journey) {
    this.#run += 1;
    this.#journey = journey;
    this.node.classList.toggle("has-journey", journey !== null);
    put(this.#layers.fliers);
    this.#placeTrails();
    this.show(0);
  }

  #placeTrails() {
    const { at } = this.#layout;
    put(this.#layers.trails);
    if (!this.#journey) return;
    for (const hop of this.#journey.hops) {
      const from = at.get(hop.from);
      const to = at.get(hop.to);
      hop.line = null;
      if (!from || !to || hop.from === hop.to) continue;
      hop.line = svg("path", { class: "trail", d: way(from, to, this.#layout.kind === "ring" ? 0.55 : 0.08) });
      this.#layers.trails.append(hop.line);
      const whole = hop.line.getTotalLength();
      hop.length = Math.max(1, whole - (this.#brokers.get(hop.to)?.size ?? 0) - 13);
      hop.line.setAttribute("stroke-dasharray", `${hop.length} ${whole}`);
      const tip = hop.line.getPointAtLength(hop.length);
      const before = hop.line.getPointAtLength(hop.length - 4);
      const turn = (Math.atan2(tip.y - before.y, tip.x - before.x) * 180) / Math.PI;
      hop.arrow = svg("path", {
        class: "arrow",
        d: "M3 0L-6 -4.5L-6 4.5Z",
        transform: `translate(${tip.x} ${tip.y}) rotate(${turn})`,
      });
      this.#layers.trails.append(hop.arrow);
    }
    this.show(this.#journey.shown ?? 0);
  }

  // Everything up to a wave, as it stands then.
  show(wave) {
    const journey = this.#journey;
    for (const [id, held] of this.#brokers) {
      const marks = journey ? journey.marks(id, wave) : "";
      held.group.dataset.journey = marks;
      const reached = journey ? journey.reached(id, wave) : new Set();
      for (const dot of held.dots.children) dot.classList.toggle("reached", reached.has(dot.dataset.name));
    }
    if (!journey) return;
    journey.shown = wave;
    for (const hop of journey.hops) {
      if (!hop.line) continue;
      const isDone = hop.wave <= wave;
      hop.line.classList.toggle("done", isDone);
      hop.line.classList.toggle("now", hop.wave === wave);
      hop.arrow.classList.toggle("done", isDone);
      hop.line.setAttribute("stroke-dashoffset", isDone ? 0 : hop.length);
    }
  }

  // Wave after wave; `told` is called when one has arrived. A second call ends the first.
  async play(told) {
    const journey = this.#journey;
    this.#run += 1;
    const run = this.#run;
    if (!journey) return;
    if (prefersStill()) {
      this.show(journey.waves);
      told(journey.waves);
      return;
    }
    for (let wave = 0; wave <= journey.waves; wave += 1) {
      if (wave > 0) await this.#fly(journey, wave, run);
      if (run !== this.#run) return;
      this.show(wave);
      told(wave);
      await frames(PAUSE_MS);
      if (run !== this.#run) return;
    }
  }

  stop() {
    this.#run += 1;
    put(this.#layers.fliers);
  }

  async #fly(journey, wave, run) {
    const hops = journey.hops.filter((hop) => hop.wave === wave && hop.line);
    if (!hops.length) return;
    const fliers = hops.map(() =>
      svg("g", { class: "flier" }, svg("circle", { class: "glow", r: 13 }), svg("circle", { r: 6 })),
    );
    put(this.#layers.fliers, fliers);
    for (const hop of hops) hop.line.classList.add("done", "now");
    const began = performance.now();
    for (;;) {
      const now = await new Promise(requestAnimationFrame);
      if (run !== this.#run) return;
      const part = Math.min(1, (now - began) / WAVE_MS);
      const eased = part < 0.5 ? 2 * part * part : 1 - (-2 * part + 2) ** 2 / 2;
      hops.forEach((hop, index) => {
        if (!hop.line.isConnected) return;
        const point = hop.line.getPointAtLength(hop.length * eased);
        fliers[index].setAttribute("transform", `translate(${point.x.toFixed(1)} ${point.y.toFixed(1)})`);
        hop.line.setAttribute("stroke-dashoffset", (hop.length * (1 - eased)).toFixed(1));
      });
      if (part >= 1) break;
    }
    put(this.#layers.fliers);
  }
}

const frames = (wait) => new Promise((resolve) => setTimeout(resolve, wait));

// The regions into which the scheme dmm has cut the space of events, and who serves each.
export function drawRegions(tree, onPick) {
  const { all, leaves, depth } = regions(tree);
  const column = Math.max(38, Math.min(130, 640 / leaves));
  const row = Math.max(76, Math.min(120, 540 / (depth + 1)));
  const width = Math.max(SIZE.width, leaves * column + 40);
  const left = (width - (leaves - 1) * column) / 2;
  const point = (each) => ({ x: left + each.column * column, y: 44 + each.level * row });
  const isNamed = (each) => column >= 44 || !each.below.length || each.level < 3;
  const most = Math.max(1, ...all.map((each) => each.entries));
  const lines = all.flatMap((each) =>
    each.below.map((child) => {
      const [a, b] = [point(each), point(child)];
      return svg("path", {
        class: "branch",
        d: `M${a.x} ${a.y + (isNamed(each) ? 36 : 16)}C${a.x} ${a.y + row / 2 + 12} ${b.x} ${b.y - row / 3} ${b.x} ${b.y - 16}`,
      });
    }),
  );
  const nodes = all.map((each) => {
    const { x, y } = point(each);
    const name = world.name(each.broker);
    const told = `Region ${each.code || "root"} at broker ${name}, ${many(each.entries, "entry", "entries")}`;
    const group = svg(
      "g",
      {
        class: "region",
        transform: `translate(${x} ${y})`,
        tabindex: "0",
        role: "button",
        "aria-label": told,
        onclick: () => onPick(each.broker),
      },
      svg("title", {}, told),
      svg("rect", { x: -19, y: -15, width: 38, height: 30, rx: 9 }),
      svg("text", { y: 4.5, "text-anchor": "middle" }, count(each.entries)),
      isNamed(each) ? svg("text", { class: "code", y: 30, "text-anchor": "middle" }, each.code || "all") : null,
    );
    group.style.setProperty("--load", `${Math.round((each.entries / most) * 100)}%`);
    return group;
  });
  const height = 44 + depth * row + 56;
  const picture = svg(
    "svg",
    { class: "drawing regions", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The tree of regions" },
    lines,
    nodes,
  );
  if (width > SIZE.width) picture.style.minWidth = `${width}px`;
  const lone = all.length === 1 && el("p", { class: "soft" }, "One region so far. It splits when much is kept in it.");
  return el("div", { class: "tree" }, lone, el("div", { class: "scroll-x", tabindex: "0" }, picture));
}
