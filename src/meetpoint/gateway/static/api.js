// How the page talks to its gateway: JSON, and server-sent events by fetch, since only that can carry a token.

import { exactParse } from "./values.js";

const TOKEN = "meetpoint-token";
const STREAM_SILENT_MS = 20_000;

let held = null;

export function token() {
  if (held === null) {
    try {
      held = sessionStorage.getItem(TOKEN) ?? "";
    } catch {
      held = "";
    }
  }
  return held;
}

export function setToken(text) {
  held = text.trim();
  try {
    if (held) sessionStorage.setItem(TOKEN, held);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // Without storage it is remembered until the page is left.
  }
}

export class ApiError extends Error {
  constructor(status, kind, message, at) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.at = at;
  }
}

const headers = (more) => (token() ? { ...more, Authorization: `Bearer ${token()}` } : more);

async function refused(answer) {
  let said = null;
  try {
    said = exactParse(await answer.text()).error;
  } catch {
    // Not ours: a proxy's page, say.
  }
  return new ApiError(
    answer.status,
    said?.kind ?? "http",
    said?.message ?? `the gateway answered ${answer.status} ${answer.statusText}`.trim(),
    said?.at,
  );
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the gateway does not answer");
  }
  if (!answer.ok) throw await refused(answer);
  return answer;
}

async function readJson(answer) {
  const text = await answer.text();
  return text ? exactParse(text) : null;
}

export const getJson = async (path, signal) =>
  readJson(await ask(path, { headers: headers({ Accept: "application/json" }), signal }));

// The body may be text that is JSON already: numbers then keep every digit that was typed.
export const postJson = async (path, body, signal) =>
  readJson(
    await ask(path, {
      method: "POST",
      headers: headers({ "Content-Type": "application/json", Accept: "application/json" }),
      body: typeof body === "string" ? body : JSON.stringify(body),
      signal,
    }),
  );

// Server-sent events, each as {event, id, data}; ends when the gateway ends it, throws when it is silent too long.
// `opened` is called when the gateway has agreed; `after` is the id of the last message that came before.
export async function* stream(path, { signal, silentMs = STREAM_SILENT_MS, opened = () => {}, after = null } = {}) {
  const stop = new AbortController();
  const abort = () => stop.abort();
  signal?.addEventListener("abort", abort);
  let timer = null;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(abort, silentMs);
  };
  try {
    const wanted = { Accept: "text/event-stream", ...(after === null ? {} : { "Last-Event-ID": after }) };
    const answer = await ask(path, { headers: headers(wanted), signal: stop.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    alive();
    opened();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const message = readMessage(part);
        if (message) yield message;
      }
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    stop.abort();
  }
}

function readMessage(text) {
  const message = { event: "message", id: null, data: [] };
  for (const line of text.split(/\r?\n/)) {
    const at = line.indexOf(":");
    if (at <= 0) continue;
    const value = line.slice(at + 1).replace(/^ /, "");
    const name = line.slice(0, at);
    if (name === "data") message.data.push(value);
    else if (name === "event" || name === "id") message[name] = value;
  }
  return message.data.length ? { ...message, data: exactParse(message.data.join("\n")) } : null;
}

// What went wrong, for a person.
export function inWords(error) {
  if (!(error instanceof ApiError)) return "The page itself failed: " + String(error?.message ?? error);
  if (error.status === 401 && token())
    return `Your token was not accepted: ${error.message}. Paste another with the key at the top right.`;
  if (error.status === 401)
    return "This network is for those who have a token. Paste yours with the key at the top right.";
  if (error.status === 403) return `Your token does not permit this: ${error.message}.`;
  if (error.status === 429) return `Too much at once: ${error.message}.`;
  return error.message.charAt(0).toUpperCase() + error.message.slice(1) + (/[.!?…]$/.test(error.message) ? "" : ".");
}
