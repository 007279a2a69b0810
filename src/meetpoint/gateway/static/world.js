// What is known of the network: asked for once, whatever view is shown, and kept up by itself when the gateway restarts.

import { ApiError, getJson, inWords, stream } from "./api.js";
import { namesIn } from "./filters.js";

const HISTORY = 120;
const EVENTS = 80;
const NETWORK_MS = 2000;
const SUBSCRIPTIONS_MS = 10_000;
const LOCKED_MS = 30_000;
const RETRY_MS = [500, 1000, 2000, 3000, 5000];

class World extends EventTarget {
  network = null;
  history = [];
  events = [];
  // The first page of subscriptions by name, and how many of them ask for each attribute.
  subscriptions = [];
  // Whether that is all of them: else brokers know how many they serve.
  hasAll = true;
  asked = new Map();
  state = "connecting";
  trouble = "";
  #fast = 0;
  #wake = null;
  #stop = new AbortController();
  #networkTimer = null;
  #subscriptionsTimer = null;
  #asking = false;

  start() {
    void this.#follow();
    this.#askNetwork();
    void this.#askSubscriptions();
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.again();
    });
    addEventListener("online", () => this.again());
  }

  // Ask now: a token was given, a broker was killed, the page is looked at again.
  again() {
    this.#wake?.();
    this.#askNetwork();
    void this.#askSubscriptions();
  }

  // Attributes of an event, those that most subscriptions ask for first.
  ranked(attributes) {
    const rank = ([name]) => this.asked.get(name) ?? 0;
    return Object.entries(attributes)
      .filter(([, value]) => value !== null)
      .sort((a, b) => rank(b) - rank(a));
  }

  restart() {
    this.#stop.abort();
    this.#stop = new AbortController();
    this.again();
  }

  // While somebody watches it heal, look more often.
  watchClosely() {
    this.#fast += 1;
    this.#askNetwork();
    return () => {
      this.#fast -= 1;
    };
  }

  get last() {
    return this.history.at(-1) ?? null;
  }

  broker(id) {
    return this.network?.brokers.find((each) => each.id === id) ?? null;
  }

  // A broker in a word: its port where all are on one machine.
  name(id) {
    const broker = this.broker(id);
    if (broker === null) return id.slice(0, 6);
    return shortNames(this.network.brokers).get(id);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  #become(state, trouble = "") {
    if (state === this.state && trouble === this.trouble) return;
    this.state = state;
    this.trouble = trouble;
    this.#tell("connection");
  }

  #askNetwork() {
    clearTimeout(this.#networkTimer);
    if (this.#asking) return;
    this.#asking = true;
    getJson("api/network")
      .then((network) => {
        network.brokers.sort((a, b) => a.place - b.place);
        this.network = network;
        this.#tell("network");
      })
      .catch((error) => {
        if (this.network === null || (error instanceof ApiError && error.status !== 0))
          this.#tell("refused", inWords(error));
      })
      .finally(() => {
        this.#asking = false;
        const wait =
          document.hidden || this.state === "locked" ? NETWORK_MS * 5 : this.#fast > 0 ? NETWORK_MS / 2 : NETWORK_MS;
        this.#networkTimer = setTimeout(() => this.#askNetwork(), wait);
      });
  }

  async #askSubscriptions() {
    clearTimeout(this.#subscriptionsTimer);
    try {
      const { subscriptions, more } = await getJson("api/subscriptions?sort=name");
      this.subscriptions = subscriptions;
      this.hasAll = !more;
      this.asked = new Map();
      for (const each of subscriptions)
        for (const name of namesIn(each.filter)) this.asked.set(name, (this.asked.get(name) ?? 0) + 1);
      this.#tell("subscriptions");
    } catch {
      // The drawing does without; what is wrong with the gateway is told anyway.
    }
    clearTimeout(this.#subscriptionsTimer);
    this.#subscriptionsTimer = setTimeout(
      () => void this.#askSubscriptions(),
      document.hidden ? SUBSCRIPTIONS_MS * 6 : SUBSCRIPTIONS_MS,
    );
  }

  async #follow() {
    for (let tries = 0; ; tries += 1) {
      let words = "";
      let isLocked = false;
      try {
        for await (const message of stream("api/live", { signal: this.#stop.signal })) {
          if (message.event === "error") continue;
          tries = 0;
          this.#become("live");
          this.#take(message.data);
        }
        words = "The gateway ended the stream.";
      } catch (error) {
        words = error instanceof ApiError ? inWords(error) : "The stream broke off.";
        isLocked = error.status === 401 || error.status === 403;
      }
      this.#become(isLocked ? "locked" : tries === 0 && this.history.length ? "reconnecting" : "away", words);
      await this.#pause(isLocked ? LOCKED_MS : RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]);
    }
  }

  #take(live) {
    this.history.push(live);
    if (this.history.length > HISTORY) this.history.shift();
    const fresh = live.events ?? [];
    this.events.unshift(...fresh.toReversed());
    this.events.length = Math.min(this.events.length, EVENTS);
    this.#tell("live", fresh);
    if (live.problem) this.#tell("refused", live.problem);
  }

  #pause(wait) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

function shortNames(brokers) {
  const hosts = new Set(brokers.map((each) => each.address.replace(/:\d+$/, "")));
  return new Map(
    brokers.map((each) => [
      each.id,
      hosts.size === 1 ? (each.address.match(/:(\d+)$/)?.[1] ?? each.address) : each.address,
    ]),
  );
}

export const world = new World();

// What is not as it should be: brokers that do not serve, and links that lead to them or past somebody.
export function health(network) {
  const ready = network.brokers.filter((each) => each.state === "ready");
  const alive = new Set(ready.map((each) => each.id));
  const away = network.brokers.filter((each) => each.state !== "ready");
  const near = new Set(["successor", "predecessor", "leaf", "neighbour"]);
  const stale = ready.filter((each) => each.links.some((link) => near.has(link.kind) && !alive.has(link.to)));
  const skipping = ready.filter((each, at) => {
    const around = each.links.filter((link) => link.kind === "successor" || link.kind === "leaf");
    return (
      ready.length > 1 && around.length > 0 && !around.some((link) => link.to === ready[(at + 1) % ready.length].id)
    );
  });
  return { ready, away, isWhole: stale.length === 0 && skipping.length === 0, wrong: new Set([...stale, ...skipping]) };
}
