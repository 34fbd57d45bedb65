// What a link restores: all that the user chose, as compressed JSON in the fragment of the address.

const KEY = "tensor-selector.session";
const FIELDS = { ir: "", target: "sm_80", strict: true, rules: "", only: "", tab: "cuda", statement: 0, example: "" };
export const TABS = ["cuda", "sass", "graph"];

export function fresh() {
  return { ...FIELDS };
}

// A session from anywhere: fields of the right type, and nothing else.
function checked(data) {
  if (typeof data !== "object" || data === null || typeof data.ir !== "string") return null;
  const session = fresh();
  for (const [name, value] of Object.entries(FIELDS)) {
    if (typeof data[name] === typeof value) session[name] = data[name];
  }
  if (!TABS.includes(session.tab)) session.tab = FIELDS.tab;
  if (!Number.isInteger(session.statement) || session.statement < 0) session.statement = 0;
  return session;
}

export async function toFragment(session) {
  const text = JSON.stringify(session);
  if (typeof CompressionStream === "undefined") return `#p=${encodeURIComponent(text)}`;
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return `#s=${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

// The session of a fragment; null if there is none, an Error if it cannot be read.
export async function fromFragment(fragment) {
  const kind = fragment.slice(0, 3);
  const data = fragment.slice(3);
  if (kind !== "#s=" && kind !== "#p=") return null;
  try {
    const found = checked(JSON.parse(kind === "#p=" ? decodeURIComponent(data) : await inflated(data)));
    if (found) return found;
  } catch {
    // said below
  }
  throw new Error("the link is damaged: its session cannot be restored");
}

async function inflated(data) {
  const binary = atob(data.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

// For a reload in the middle of typing: the fragment follows a moment later.
export function keep(session) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(session));
  } catch {
    // full or forbidden: the fragment has it as well
  }
}

export function kept() {
  try {
    return checked(JSON.parse(sessionStorage.getItem(KEY)));
  } catch {
    return null;
  }
}
