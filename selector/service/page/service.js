// Requests to the service. Addresses are relative to the files of the page: it may stand behind a
// proxy's prefix, and is at `p/NAME` as well.

const TOKEN = "tensor-selector.token";
export const ROOT = new URL("..", import.meta.url).href;
const EVENTS = "text/event-stream";

export class Refused extends Error {
  // An answer that is not 200: `error` as the service gives it, `wait` seconds of Retry-After.
  constructor(status, error, wait) {
    super(error.what);
    Object.assign(this, { status, error, wait });
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

async function send(path, body, signal, accept = EVENTS) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers, signal };
  if (body) {
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    Object.assign(headers, { "Content-Type": "application/json", Accept: accept });
  }
  let reply;
  try {
    reply = await fetch(new URL(path, ROOT), options);
  } catch (error) {
    throw silence(error);
  }
  if (reply.ok) return reply;
  const text = await reply.text();
  const wait = Number(reply.headers.get("Retry-After")) || 0;
  throw new Refused(reply.status, parsed(text) ?? plain(`${reply.status} ${reply.statusText}`, text), wait);
}

function silence(error) {
  if (error.name === "AbortError") return error;
  return new Refused(0, plain("the service does not answer", String(error.message)), 0);
}

// Something in front of the service may answer in a shape of its own.
function parsed(text) {
  try {
    const { error } = JSON.parse(text);
    return typeof error?.what === "string" ? error : null;
  } catch {
    return null;
  }
}

function plain(what, why) {
  return { kind: "ServiceError", what, why: why.slice(0, 500), hint: "", where: {} };
}

export const get = async (path, signal) => (await send(path, null, signal)).json();
export const put = async (path, body) => (await send(path, body, undefined, "application/json")).json();
export const kernelFile = async (sha) => (await send(`v1/artifacts/${sha}`)).blob();

// The answer to a job; `progress` is called with what the service says of it every second.
export async function post(path, body, signal, progress) {
  const reply = await send(path, body, signal);
  if (!reply.headers.get("Content-Type")?.startsWith(EVENTS)) return reply.json();
  try {
    for await (const [name, data] of events(reply.body)) {
      if (name === "result") return data;
      if (name === "error") throw new Refused(data.status, data.error, data.retry_after);
      progress(data);
    }
  } catch (error) {
    throw error instanceof Refused ? error : silence(error);
  }
  throw new Refused(0, plain("the service does not answer", "the stream of events ended early"), 0);
}

// The server-sent events of a body, as [name, data].
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const found = /^event: (.*)\ndata: (.*)$/.exec(part);
      if (found) yield [found[1], JSON.parse(found[2])];
    }
  }
}

// The answer, or the refusal, or that nobody wants it any more: a promise that fails no more.
export async function answered(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof Refused || error.name === "AbortError") return error;
    throw error;
  }
}
