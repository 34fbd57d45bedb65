// What a link and a reload restore: all that the user chose.

const KEY = "tensor-selector.session";
const FIELDS = {
  kind: "ir", ir: "", python: "", auto: false, target: "sm_80", strict: true, rules: "", only: "",
  tab: "cuda", compared: "cuda", statement: 0, example: "",
};
const TEXTS = { kind: "ir", text: "", auto: false, rules: "", only: "", strict: true };
export const TABS = ["cuda", "kernels", "sass", "graph"];
export const COMPARED = ["selected", "cuda", "sass"];
const KINDS = ["ir", "python"];

export const fresh = () => ({ ...FIELDS, other: null });

// Fields of the right type, and nothing else.
function typed(fields, data) {
  const found = { ...fields };
  for (const [name, value] of Object.entries(fields)) {
    if (typeof data?.[name] === typeof value) found[name] = data[name];
  }
  if (!KINDS.includes(found.kind)) found.kind = fields.kind;
  return found;
}

// A session from anywhere; `other` is the other side of a comparison: its target, and the version
// held (null: the same program).
function checked(data) {
  if (typeof data !== "object" || data === null) return null;
  const session = { ...fresh(), ...typed(FIELDS, data) };
  if (!TABS.includes(session.tab)) session.tab = FIELDS.tab;
  if (!COMPARED.includes(session.compared)) session.compared = FIELDS.compared;
  if (!Number.isInteger(session.statement) || session.statement < 0) session.statement = 0;
  const other = data.other;
  if (typeof other?.target === "string") {
    session.other = { target: other.target, held: other.held ? typed(TEXTS, other.held) : null };
  }
  return session;
}

// The program as it is now: what `other.held` keeps.
export function version({ kind, auto, rules, only, strict, ...session }) {
  return { kind, text: session[kind], auto, rules, only, strict };
}

// A request of the service about a version, for a target.
export function question({ kind, text, auto, rules, only }, target) {
  const schedule = auto ? { schedule: "auto" } : {};
  const program = kind === "python" ? { kind, program: text, ...schedule } : { ir: text };
  return { ...program, target, rules, instructions: only ? [only] : null };
}

// What is stored of a session: the request that it makes, and what is chosen on the page.
export function toLink(session) {
  const { strict, tab, compared, statement, example, other } = session;
  const view = { tab, compared, statement, example, ...(other ? { other } : {}) };
  return { ...question(version(session), session.target), strict, view };
}

export function fromLink({ view = {}, kind = "ir", program, ir, schedule, instructions, ...rest }) {
  const text = kind === "python" ? program : ir, auto = schedule === "auto";
  return checked({ ...view, ...rest, kind, [kind]: text, auto, only: instructions?.[0] ?? "" });
}

// For a reload in the middle of typing.
export function keep(session) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(session));
  } catch {
    // full or forbidden: a link keeps it
  }
}

export function kept() {
  try {
    return checked(JSON.parse(sessionStorage.getItem(KEY)));
  } catch {
    return null;
  }
}
