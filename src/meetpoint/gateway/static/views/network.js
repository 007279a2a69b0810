// The network drawn, and an event published into it whose way is shown hop by hop.

import { getJson, inWords, postJson } from "../api.js";
import { Drawing, drawRegions } from "../drawing.js";
import { announce, el, icon, put, setText } from "../dom.js";
import { Journey } from "../journey.js";
import { kindOf, many, ms, toField, typed } from "../values.js";
import { health, world } from "../world.js";

const FIELDS = 6;
const SAMPLE = { symbol: "OTE", exchange: "NYSE", price: 121.5, volume: 90000 };
const SHOW_MS = 2500;
const FOLLOW_MS = 120_000;
const ASK_MS = 250;

export function mount(root) {
  const page = new Page(root);
  return () => page.leave();
}

class Page {
  #stop = new AbortController();
  #kind = null;
  #journey = null;
  #isTouched = false;
  #recent = 0;

  constructor(root) {
    this.drawing = new Drawing({ onPick: (id) => this.#showBroker(id) });
    this.lead = el("p", { class: "lead" });
    this.layouts = el("div", { class: "segments", role: "group", "aria-label": "How it is drawn", hidden: true });
    this.stage = el("div", { class: "stage" }, this.drawing.node);
    this.legend = el(
      "ul",
      { class: "legend", "aria-label": "Legend" },
      el("li", {}, el("i", { class: "key-broker" }), "broker, stronger with more load"),
      el("li", {}, el("i", { class: "key-sub" }), "subscription"),
      el("li", {}, el("i", { class: "key-event" }), "your event"),
    );
    this.treeLegend = el(
      "p",
      { class: "legend", hidden: true },
      "Regions of the space of events, and how many subscriptions are kept in each.",
    );
    this.detail = el("div", { class: "detail", hidden: true });
    this.fields = el("div", { class: "fields" });
    this.note = el("p", { class: "note", role: "alert" });
    this.rest = el("div", { class: "rest" });
    const useRecent = () => this.#useRecent(true);
    this.another = el("button", { type: "button", class: "quiet small", onclick: useRecent }, "Use a recent event");
    this.button = el("button", { type: "submit", class: "primary wide" }, "Publish");
    this.form = el(
      "form",
      {
        class: "publish",
        onsubmit: (event) => this.#publish(event),
        oninput: () => {
          this.#isTouched = true;
        },
        novalidate: true,
      },
      this.fields,
      this.rest,
      el(
        "div",
        { class: "row between" },
        el(
          "button",
          { type: "button", class: "quiet small", onclick: () => this.#addField("", "", true) },
          icon("plus"),
          "Attribute",
        ),
        this.another,
      ),
      this.button,
      this.note,
    );
    this.player = el("div", { class: "player", hidden: true });
    this.story = el("section", { class: "card story", hidden: true, "aria-labelledby": "story-title" });
    put(
      root,
      el("div", { class: "heading" }, el("h1", {}, "Network"), this.lead),
      el(
        "div",
        { class: "split" },
        el(
          "section",
          { class: "card picture", "aria-label": "Drawing" },
          el("div", { class: "row between" }, this.legend, this.treeLegend, this.layouts),
          this.stage,
          this.player,
          this.detail,
        ),
        el(
          "div",
          { class: "side" },
          el(
            "section",
            { class: "card", "aria-labelledby": "publish-title" },
            el("h2", { id: "publish-title" }, "Publish an event"),
            this.form,
          ),
          this.story,
        ),
      ),
    );
    const signal = this.#stop.signal;
    world.addEventListener("network", () => this.#update(), { signal });
    world.addEventListener("live", () => this.#useRecent(false), { signal });
    if (world.network) this.#update();
    this.#useRecent(false);
    world.addEventListener("subscriptions", () => this.#setSubscriptions(), { signal });
    this.#setSubscriptions();
  }

  leave() {
    this.#stop.abort();
    this.drawing.stop();
  }

  // -- the drawing -----------------------------------------------------------------------------------------------------

  #update() {
    const network = world.network;
    const kinds = [["ring", "Ring"]];
    if (network.brokers.some((each) => each.regions?.length)) kinds.unshift(["cube", "Hypercube"]);
    if (network.tree?.length) kinds.push(["tree", "Region tree"]);
    if (!kinds.some(([kind]) => kind === this.#kind)) this.#kind = kinds[0][0];
    this.layouts.hidden = kinds.length === 1;
    this.legend.hidden = this.#kind === "tree";
    this.treeLegend.hidden = this.#kind !== "tree";
    if (this.layouts.children.length !== kinds.length) {
      put(
        this.layouts,
        kinds.map(([kind, label]) =>
          el("button", { type: "button", "data-kind": kind, onclick: () => this.#choose(kind) }, label),
        ),
      );
    }
    for (const button of this.layouts.children)
      button.setAttribute("aria-pressed", String(button.dataset.kind === this.#kind));
    this.drawing.update(network, this.#kind);
    if (this.#kind === "tree") {
      if (!this.stage.contains(document.activeElement))
        put(
          this.stage,
          drawRegions(network.tree, (id) => this.#showBroker(id)),
        );
    } else if (!this.stage.contains(this.drawing.node)) {
      put(this.stage, this.drawing.node);
    }
    const { away, isWhole } = health(network);
    const brokers = many(network.brokers.length, "broker");
    setText(
      this.lead,
      away.length
        ? `${many(away.length, "broker")} of ${network.brokers.length} ${away.length === 1 ? "does" : "do"} not serve${isWhole ? "; the others closed the gap." : "; the others are closing the gap."}`
        : `${brokers} bring each event to exactly those who asked for it, without asking everyone. Publish one and watch.`,
    );
    if (this.pickedId) this.#showBroker(this.pickedId);
  }

  #choose(kind) {
    this.#kind = kind;
    this.stage.replaceChildren();
    this.#update();
  }

  #showBroker(id) {
    this.pickedId = id;
    const broker = id && world.broker(id);
    this.detail.hidden = !broker;
    if (!broker) return;
    const numbers = Object.entries(broker.numbers ?? {}).slice(0, 8);
    const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    put(
      this.detail,
      el("h3", {}, `Broker ${world.name(id)}`, el("span", { class: `badge ${broker.state}` }, broker.state)),
      el(
        "dl",
        { class: "facts" },
        fact("address", broker.address),
        fact("id", `${broker.id.slice(0, 12)}…`),
        fact("links", String(new Set(broker.links.map((link) => link.to)).size)),
        broker.regions?.length ? fact("regions", broker.regions.slice(0, 6).join(", ")) : null,
        numbers.map(([name, value]) =>
          fact(name.replaceAll("_", " "), Number(value).toLocaleString("en", { maximumFractionDigits: 1 })),
        ),
      ),
    );
  }

  #setSubscriptions() {
    this.drawing.setSubscriptions(Map.groupBy(world.subscriptions, (each) => each.broker));
    this.#useRecent(false);
  }

  // -- what is published -----------------------------------------------------------------------------------------------

  // Fields are filled from what is published anyway; the attributes that filters ask for most are shown, the others are
  // kept and can be opened, so that what met a subscription once meets it again.
  #useRecent(isWanted) {
    if (this.#isTouched && !isWanted) return;
    const events = world.events;
    this.another.hidden = events.length === 0;
    const hit = events.filter((each) => each.matched > 0);
    const state = `${events.length > 0} ${hit.length > 0} ${world.asked.size > 0}`;
    if (!isWanted && state === this.filledFrom) return;
    this.filledFrom = state;
    const pool = hit.length ? hit : events;
    const entries = world.ranked(pool.length ? pool[this.#recent++ % pool.length].attributes : SAMPLE);
    put(this.fields);
    for (const [name, value] of entries) this.#addField(name, toField(value), false);
    this.#fold(true);
  }

  #fold(isFolded) {
    const hidden = [...this.fields.children].slice(FIELDS);
    for (const row of hidden) row.hidden = isFolded;
    put(
      this.rest,
      hidden.length > 0 &&
        el(
          "button",
          {
            type: "button",
            class: "quiet small",
            "aria-expanded": String(!isFolded),
            onclick: () => this.#fold(!isFolded),
          },
          isFolded ? `Show ${many(hidden.length, "more attribute")}` : "Show fewer",
        ),
    );
  }

  #addField(name, value, isFocused) {
    const kind = el("span", { class: "kind", "aria-hidden": "true" });
    const key = el("input", {
      class: "name",
      "aria-label": "Attribute",
      placeholder: "attribute",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
    });
    const content = el("input", {
      class: "value",
      "aria-label": "Value",
      placeholder: "value",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
    });
    key.value = name;
    content.value = value;
    const showKind = () => {
      setText(kind, content.value === "" ? "text" : kindOf(typed(content.value).value));
      content.setAttribute("aria-label", `Value of ${key.value || "the attribute"}`);
    };
    content.addEventListener("input", showKind);
    key.addEventListener("input", showKind);
    showKind();
    const row = el(
      "div",
      { class: "field" },
      key,
      content,
      kind,
      el(
        "button",
        {
          type: "button",
          class: "icon-button small",
          "aria-label": "Remove this attribute",
          onclick: () => {
            this.#isTouched = true;
            row.remove();
          },
        },
        icon("close"),
      ),
    );
    this.fields.append(row);
    if (isFocused) {
      this.#isTouched = true;
      key.focus();
    }
  }

  #body() {
    const parts = [];
    const names = new Set();
    for (const row of this.fields.children) {
      const name = row.querySelector(".name").value.trim();
      const value = row.querySelector(".value").value;
      if (!name && !value) continue;
      if (!name) throw new Error("An attribute has no name.");
      if (names.has(name)) throw new Error(`The attribute ${name} is there twice.`);
      names.add(name);
      parts.push(`${JSON.stringify(name)}:${typed(value).json}`);
    }
    return `{"attributes":{${parts.join(",")}}}`;
  }

  async #publish(event) {
    event.preventDefault();
    setText(this.note, "");
    let body;
    try {
      body = this.#body();
    } catch (error) {
      setText(this.note, error.message);
      return;
    }
    this.button.disabled = true;
    setText(this.button, "Publishing…");
    try {
      const { id } = await postJson("api/publish", body, this.#stop.signal);
      await this.#follow(id);
    } catch (error) {
      if (error.name !== "AbortError") setText(this.note, inWords(error));
    } finally {
      this.button.disabled = false;
      setText(this.button, "Publish");
    }
  }

  // -- where it went ---------------------------------------------------------------------------------------------------

  // Shown as soon as all is known, or most; what comes later is added as it comes.
  async #follow(id) {
    const ask = () => getJson(`api/path/${encodeURIComponent(id)}`, this.#stop.signal);
    const began = performance.now();
    let path = await ask();
    while (!path.done && performance.now() - began < SHOW_MS) {
      await pause(ASK_MS);
      path = await ask();
    }
    this.#journey = new Journey(path);
    if (this.#kind === "tree") this.#choose("ring");
    this.drawing.pick(null);
    this.drawing.setJourney(this.#journey);
    this.#showStory();
    const box = this.stage.getBoundingClientRect();
    if (box.top < 0 || box.bottom > innerHeight + box.height / 3) this.stage.scrollIntoView({ block: "start" });
    if (!path.done) void this.#followOn(id, ask, began).catch(() => {});
    void this.drawing.play((wave) => this.#tell(wave));
  }

  async #followOn(id, ask, began) {
    while (performance.now() - began < FOLLOW_MS) {
      await pause(ASK_MS * 4);
      const path = await ask();
      if (this.#journey?.id !== id) return;
      const fresh = new Journey(path);
      if (fresh.size !== this.#journey.size || fresh.isDone) {
        this.#journey = fresh;
        this.drawing.setJourney(fresh);
        this.#showStory();
        this.drawing.show(fresh.waves);
        this.#tell(fresh.waves);
      }
      if (path.done) return;
    }
  }

  #showStory() {
    const journey = this.#journey;
    const lines = journey.story();
    this.lines = lines.map((line) => ({ wave: line.wave, node: storyLine(line) }));
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: journey.waves,
      step: 1,
      value: 0,
      "aria-label": "Step of the journey",
      oninput: () => {
        this.drawing.stop();
        this.drawing.show(Number(this.slider.value));
        this.#mark(Number(this.slider.value));
      },
    });
    this.outcome = el("p", { class: "outcome", role: "status" });
    this.player.hidden = false;
    this.story.hidden = false;
    put(
      this.player,
      this.outcome,
      el(
        "div",
        { class: "row" },
        el(
          "button",
          { type: "button", class: "small", onclick: () => void this.drawing.play((wave) => this.#tell(wave)) },
          "Replay",
        ),
        this.slider,
        el(
          "button",
          {
            type: "button",
            class: "icon-button small",
            "aria-label": "Close the journey",
            title: "Close the journey",
            onclick: () => this.#close(),
          },
          icon("close"),
        ),
      ),
    );
    put(
      this.story,
      el("h2", { id: "story-title" }, "Its journey"),
      el(
        "ol",
        { class: "steps", tabindex: "0", "aria-label": "Steps" },
        this.lines.map((line) => line.node),
      ),
      el(
        "p",
        { class: "soft tiny" },
        "Times are the brokers’; the drawing is slowed down. ",
        el("code", { class: "id" }, journey.id),
      ),
    );
    this.#mark(0);
  }

  #close() {
    this.#journey = null;
    this.drawing.setJourney(null);
    this.player.hidden = true;
    this.story.hidden = true;
    this.button.focus();
  }

  #tell(wave) {
    if (this.#journey === null) return;
    this.slider.value = String(wave);
    this.#mark(wave);
  }

  #mark(wave) {
    const journey = this.#journey;
    for (const line of this.lines) {
      line.node.classList.toggle("come", line.wave <= wave);
      line.node.classList.toggle("now", line.wave === wave);
    }
    const list = this.story.querySelector(".steps");
    const now = this.lines.find((line) => line.wave === wave)?.node;
    if (now && list) list.scrollTop = Math.max(0, now.offsetTop - list.offsetTop - 40);
    if (wave >= journey.waves) {
      const { names, text } = journey.summary();
      this.outcome.classList.toggle("met", names > 0);
      setText(
        this.outcome,
        journey.isDone
          ? text
          : `${text} It is still on its way${journey.silent.length ? ": a broker that may want it does not answer." : "."}`,
      );
      if (this.outcome.dataset.told !== journey.id) announce(text);
      this.outcome.dataset.told = journey.id;
    } else if (!this.outcome.textContent) {
      setText(this.outcome, "On its way…");
    }
  }
}

const pause = (wait) => new Promise((resolve) => setTimeout(resolve, wait));

function storyLine(line) {
  const broker = el("b", {}, world.name(line.broker));
  const words = {
    publish: () => [line.text, " ", broker],
    hop: () => [el("b", {}, world.name(line.from)), " → ", broker, el("span", { class: "soft" }, ` ${line.text}`)],
    met: () => [
      line.text,
      " ",
      broker,
      line.matched.length
        ? el(
            "span",
            { class: "names" },
            line.matched.slice(0, 12).map((name) => el("span", { class: "chip asked" }, name)),
            line.matched.length > 12 && el("span", { class: "chip more" }, `+${line.matched.length - 12}`),
          )
        : null,
    ],
    visited: () => [broker, ": ", line.text],
    dropped: () => [broker, ": ", line.text],
    delivered: () => ["Delivered to ", el("span", { class: "chip asked" }, line.name), " at ", broker],
  };
  return el(
    "li",
    { class: line.kind },
    el("span", { class: "when" }, line.ms === undefined || line.ms === null ? "" : ms(line.ms)),
    el("span", { class: "what" }, words[line.kind]()),
  );
}
