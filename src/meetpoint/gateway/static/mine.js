// Subscriptions of this tab: each is a stream of what matches, open whichever view is shown, until it is ended.

import { inWords, stream } from "./api.js";
import { many } from "./values.js";

const KEPT = 30;
const SILENT_MS = 60_000;
const RETRY_MS = 2000;

class Mine extends EventTarget {
  all = [];

  add(filter, durable) {
    const each = {
      filter,
      durable,
      events: [],
      count: 0,
      last: null,
      state: "starting",
      trouble: "",
      stop: new AbortController(),
    };
    this.all.unshift(each);
    void this.#follow(each);
    this.#tell();
    return each;
  }

  end(each) {
    each.stop.abort();
    this.all = this.all.filter((other) => other !== each);
    this.#tell();
  }

  #tell(each = null, event = null) {
    this.dispatchEvent(new CustomEvent("change", { detail: { each, event } }));
  }

  async #follow(each) {
    const query = new URLSearchParams({ filter: each.filter });
    if (each.durable) query.set("durable", each.durable);
    const { signal } = each.stop;
    while (!signal.aborted) {
      try {
        const opened = () => this.#become(each, "live", "");
        for await (const message of stream(`events?${query}`, {
          signal,
          silentMs: SILENT_MS,
          opened,
          after: each.last,
        })) {
          each.last = message.id ?? each.last;
          if (message.event === "ended") return this.#become(each, "ended", message.data.reason);
          if (message.event === "message") this.#take(each, message.data);
          else if (message.event === "dropped")
            this.#become(each, "live", `Too fast for this tab: ${many(message.data.count, "event")} left out.`);
          else if (message.event === "gap") this.#become(each, "live", message.data.reason);
        }
        this.#become(each, "waiting", "The gateway ended the stream; trying again.");
      } catch (error) {
        if (signal.aborted) return;
        this.#become(each, "waiting", inWords(error));
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  #take(each, event) {
    each.events.unshift({ ...event, at: Date.now() });
    each.events.length = Math.min(each.events.length, KEPT);
    each.count += 1;
    this.#tell(each, event);
  }

  #become(each, state, trouble) {
    each.state = state;
    each.trouble = trouble;
    this.#tell(each);
  }
}

export const mine = new Mine();
