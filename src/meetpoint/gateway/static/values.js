// Values of events, shown and read without losing a digit: JavaScript's numbers are doubles, an event's are not.

// A number that a double does not show as it was written.
class Exact {
  constructor(text) {
    this.text = text;
  }
  toString() {
    return this.text;
  }
}

export function exactParse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source
      ? keep(value, context.source)
      : value,
  );
}

// What code computes with stays a number; only what would look different, or be another number, is kept as text.
function keep(value, source) {
  if (/^-?\d+$/.test(source)) return Number.isSafeInteger(value) ? value : new Exact(source);
  const digits = source
    .replace(/[eE].*$/, "")
    .replace(/[-.]/g, "")
    .replace(/^0+/, "");
  return digits.length > 15 ? new Exact(source) : value;
}

export function show(value) {
  if (value === null || value === undefined) return "null";
  if (value instanceof Exact) return value.text;
  if (typeof value === "object") {
    return `{${Object.entries(value)
      .map(([name, each]) => `${name}: ${show(each)}`)
      .join(", ")}}`;
  }
  return String(value);
}

export function kindOf(value) {
  if (value === null) return "null";
  if (value instanceof Exact || typeof value === "number") return "number";
  if (typeof value === "boolean") return "yes/no";
  return typeof value === "object" ? "object" : "text";
}

// What a person typed: JSON where it is a number, true, false, null, an object or a quoted text; else a text as it is.
export function typed(text) {
  const trimmed = text.trim();
  if (/^(-?\d|true$|false$|null$|[{"])/.test(trimmed)) {
    try {
      return { value: exactParse(trimmed), json: trimmed };
    } catch {
      // A text that only begins like one: 12 Angry Men.
    }
  }
  return { value: text, json: JSON.stringify(text) };
}

// The same the other way: what to put in a field, so that it is read as this value.
export function toField(value) {
  if (value instanceof Exact) return value.text;
  if (typeof value === "string") return typed(value).json === JSON.stringify(value) ? value : JSON.stringify(value);
  return toJson(value);
}

function toJson(value) {
  if (value instanceof Exact) return value.text;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value)
      .map(([name, each]) => `${JSON.stringify(name)}:${toJson(each)}`)
      .join(",")}}`;
  }
  return JSON.stringify(value);
}

const counted = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

export const count = (number) => counted.format(number);

export function brief(number) {
  return Math.abs(number) < 1000
    ? String(Math.round(number * (Math.abs(number) < 10 ? 10 : 1)) / (Math.abs(number) < 10 ? 10 : 1))
    : short.format(number);
}

export const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

export function ms(value) {
  if (value < 1) return `${value.toFixed(2)} ms`;
  if (value < 100) return `${value.toFixed(1)} ms`;
  if (value < 10_000) return `${count(value)} ms`;
  return `${(value / 1000).toFixed(1)} s`;
}

export function ago(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  if (seconds < 2) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const clock = (at) => clockFormat.format(new Date(at));
