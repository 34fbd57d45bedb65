// Requests to the service. Addresses are relative: the page may stand behind a proxy's prefix.

const TOKEN = "tensor-selector.token";

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

async function send(path, body, signal) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers, signal };
  if (body) {
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    headers["Content-Type"] = "application/json";
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, plain("the service does not answer", String(error.message)), 0);
  }
  if (reply.ok) return reply;
  const text = await reply.text();
  const wait = Number(reply.headers.get("Retry-After")) || 0;
  throw new Refused(reply.status, parsed(text) ?? plain(`${reply.status} ${reply.statusText}`, text), wait);
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
export const post = async (path, body, signal) => (await send(path, body, signal)).json();
export const picture = async (body, signal) => (await send("v1/graph", body, signal)).blob();
