// Requests: the session, readings, actions, the stream of events, and calls of tools.

const PLACE = new URL(".", document.baseURI).pathname;
const STORE = `dragoman-key ${PLACE}`;

let key = read();

function read() {
  try {
    return localStorage.getItem(STORE) ?? "";
  } catch {
    return "";
  }
}

function keep(value) {
  key = value;
  try {
    if (value) localStorage.setItem(STORE, value);
    else localStorage.removeItem(STORE);
  } catch {
    // Without storage, the session ends with the page.
  }
}

export const place = PLACE;
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { "X-Console-Key": key, ...options.headers };
  let response;
  try {
    response = await fetch(`${PLACE}api/${path}`, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "no connection to dragoman");
  }
  if (response.ok) return response;
  let said = response.statusText;
  try {
    said = (await response.json()).error ?? said;
  } catch {
    // A proxy answered.
  }
  if (response.status === 401 && !path.startsWith("session")) window.dispatchEvent(new Event("left"));
  throw new ApiError(response.status, said);
}

export const get = async (path) => (await ask(path)).json();
export const post = async (path, body = {}) => (await send(path, JSON.stringify(body))).json();

const send = (path, text, signal) =>
  ask(path, { method: "POST", body: text, headers: { "Content-Type": "application/json" }, signal });

/** Exchange a token for a session. */
export async function enter(token) {
  keep((await post("session", { token })).key);
}

export async function leave() {
  try {
    await ask("session", { method: "DELETE" });
  } finally {
    keep("");
  }
}

/** Call a tool; `text` is the whole body, so that numbers arrive as they were typed. */
export async function call(text, { signal, onprogress }) {
  const response = await send("calls", text, signal);
  let found = null;
  for await (const line of lines(response, "\n")) {
    if (!line) continue;
    const one = JSON.parse(line);
    if (one.progress) onprogress(one.progress);
    if (one.result) found = one.result;
  }
  if (!found) throw new ApiError(0, "the connection ended before the result");
  return found;
}

async function* lines(response, end) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split(end);
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}

/** Follow the events for ever: `onevent(kind, data)`, `onstate(isConnected)`. */
export async function follow(onevent, onstate) {
  let last = "";
  let wait = 500;
  for (;;) {
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      const response = await ask("events", { headers: { ...headers, Accept: "text/event-stream" } });
      onstate(true);
      wait = 500;
      if (!last) onevent("resync", {});
      for await (const block of lines(response, "\n\n")) {
        const fields = {};
        for (const line of block.split("\n")) {
          const at = line.indexOf(": ");
          if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
        }
        if (fields.id) last = fields.id;
        if (fields.data) onevent(fields.event, JSON.parse(fields.data));
      }
    } catch (error) {
      if (error.status === 401) return;
    }
    onstate(false);
    await new Promise((go) => setTimeout(go, wait));
    wait = Math.min(wait * 2, 10000);
  }
}
