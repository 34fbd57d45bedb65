// What is asked of the service: both answers about a program, the e-graph, the saved kernel; what
// is told while they take time, and after a refusal.

import { $, empty, make, notice } from "./panes.js";
import { busy, clear, RESULTS, say, show } from "./results.js";
import { kernelFile, post, Refused, setToken } from "./service.js";
import { chosen, request, state } from "./state.js";

let compiling = null; // AbortControllers of what is on its way
let drawing = null;
let ticking = 0;
let graphUrl = "";

// What the service says of a job that takes more than a second.
const told = (p) => (p.state === "queued" ? `in the queue (${p.waiting} wait)` : `${p.stage || "starting"}, ${Math.round(p.seconds)} s`);

// A function for the progress of each of several jobs; the status shows them all.
function watcher() {
  const parts = {};
  return (name) => (progress) => {
    parts[name] = `${name}: ${told(progress)}`;
    say("busy", Object.values(parts).join(" · "));
  };
}

// Ask about the program as it is; whether there were answers, or a refusal that is shown.
export async function compile() {
  clearInterval(ticking);
  compiling?.abort();
  drawing?.abort();
  const mine = (compiling = new AbortController());
  const { session } = state;
  if (!session.ir.trim()) {
    clear("Paste a program in the text form on the left, or choose an example.");
    say("", "no program");
    return;
  }
  say("busy", "compiling");
  busy(RESULTS, true);
  const body = request();
  const asked = { ...body, strict: session.strict };
  if (session.tab === "sass" && session.target !== "amx") asked.sass = true;
  const watch = watcher();
  // Both go at once: the reasons are wanted above all where there is no code.
  const [code, reasons] = await Promise.allSettled([
    post("v1/compile", asked, mine.signal, watch("code")),
    post("v1/explain", body, mine.signal, watch("reasons")),
  ]);
  if (mine !== compiling || mine.signal.aborted) return;
  busy(RESULTS, false);
  const refused = show(body, code, reasons);
  if (refused) complain(refused, compile);
  if (reasons.status === "rejected") return;
  if (session.tab === "graph") void graph();
  else {
    busy(["graph"], false);
    empty("graph", "The e-graph is drawn when this tab is open.");
  }
}

// Show a refusal, and what can be done about it.
export function complain(refused, retry) {
  const more = [];
  if (refused.status === 401) more.push(tokenForm(retry));
  else if (!refused.error.where?.func && refused.status !== 422) {
    const again = make("button", {}, "Try again");
    again.addEventListener("click", retry);
    more.push(again);
  }
  notice(refused, more);
  if (!state.shown.missed.size || refused.status !== 422) say("wrong", refused.error.kind);
  if (!refused.wait) return;
  let left = refused.wait;
  ticking = setInterval(() => {
    left -= 1;
    say("wrong", `${refused.error.kind}: again in ${left} s`);
    if (left > 0) return;
    clearInterval(ticking);
    void retry();
  }, 1000);
}

function tokenForm(retry) {
  const field = make("input", { type: "password", "aria-label": "Token", autocomplete: "off" });
  const button = make("button", {}, "Use this token");
  const use = () => {
    setToken(field.value.trim());
    void retry();
  };
  button.addEventListener("click", use);
  field.addEventListener("keydown", (event) => event.key === "Enter" && use());
  return make("p", {}, field, " ", button);
}

export async function graph() {
  drawing?.abort();
  const mine = (drawing = new AbortController());
  if (!state.shown.report?.statements.length) {
    empty("graph", "No statement of this program has an e-graph.");
    return;
  }
  busy(["graph"], true);
  const body = request();
  if (chosen()) body.statement = chosen().statement;
  const waiting = (progress) => mine === drawing && empty("graph", `The e-graph: ${told(progress)}`);
  try {
    const { svg } = await post("v1/graph", body, mine.signal, waiting);
    if (mine !== drawing) return;
    URL.revokeObjectURL(graphUrl);
    graphUrl = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    // As an image, an SVG runs nothing and loads nothing.
    const image = make("img", { src: graphUrl, alt: `e-graph of statement ${state.session.statement}`, title: "Click: actual size, and back" });
    image.addEventListener("click", () => image.classList.toggle("actual"));
    $("graph").replaceChildren(image);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Refused)) throw error;
    empty("graph", [error.error.what, error.error.why, error.error.hint].filter(Boolean).join(": "));
  }
  busy(["graph"], false);
}

// Save the kernel whose code is shown, as the file that `selector.load` reads.
export async function download() {
  const name = /^module ([A-Za-z_]\w*)/m.exec(state.session.ir)?.[1] ?? "program";
  try {
    const url = URL.createObjectURL(await kernelFile(state.kernel));
    make("a", { href: url, download: `${name}.kernel` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    complain(error, error.status === 404 ? compile : download);
  }
}
