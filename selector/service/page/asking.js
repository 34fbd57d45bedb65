// What is asked of the service: the answers about a program, the e-graph, the saved kernel; what is
// told while they take time, and after a refusal.

import { askOther } from "./compare.js";
import { noFacts } from "./facts.js";
import { $, empty, failed, make, notice } from "./panes.js";
import { busy, clear, RESULTS, say, show, showMachine } from "./results.js";
import { answered, kernelFile, post, Refused, setToken } from "./service.js";
import { chosen, request, state, text, unanswered } from "./state.js";

const IDLE = 800; // milliseconds after which machine code is made that nobody looks at yet
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
  const { signal } = mine;
  const { session } = state;
  if (!text().trim()) {
    clear("Write or paste a program, or choose one of the examples.");
    say("", "no program");
    return;
  }
  say("busy", "compiling");
  busy(RESULTS, true);
  const body = request();
  const strict = { ...body, strict: session.strict };
  const emitted = { ...strict, kernels: session.target !== "amx" };
  const watch = watcher();
  // Both go at once: the reasons are wanted above all where there is no code.
  const [code, reasons] = await Promise.all([
    answered(post("v1/compile", emitted, signal, watch("code"))),
    answered(post("v1/explain", body, signal, watch("reasons"))),
  ]);
  if (signal.aborted) return;
  busy(RESULTS, false);
  state.answers = { ...unanswered(), code, reasons };
  const refused = show(text());
  if (refused) complain(refused, compile);
  if (reasons instanceof Refused) return;
  if (session.tab === "graph") void graph();
  else {
    busy(["graph"], false);
    empty("graph", "The e-graph is drawn when this tab is open.");
  }
  await Promise.all([machineCode(strict, signal), askOther(signal)]);
}

// The machine code of what has just been compiled, soon where somebody waits for it.
async function machineCode(strict, signal) {
  if (state.answers.code instanceof Refused || strict.target === "amx") {
    showMachine();
    return;
  }
  noFacts("Machine code is being made…");
  const wanted = state.session.tab === "sass" || state.session.other;
  if (!wanted) await new Promise((done) => setTimeout(done, IDLE));
  if (signal.aborted) return;
  const progress = (p) => noFacts(`Machine code: ${told(p)}`);
  const machine = await answered(post("v1/compile", { ...strict, sass: true }, signal, progress));
  if (signal.aborted) return;
  state.answers.machine = machine;
  showMachine();
}

// Show a refusal, and what can be done about it.
export function complain(refused, retry) {
  const more = [];
  if (refused.status === 401) more.push(tokenForm(retry));
  else if (!refused.error.where?.func && refused.status !== 422) more.push(againButton(retry));
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

function againButton(retry) {
  const again = make("button", {}, "Try again");
  again.addEventListener("click", retry);
  return again;
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
  const answer = await answered(post("v1/graph", body, mine.signal, waiting));
  if (mine.signal.aborted) return;
  busy(["graph"], false);
  if (answer instanceof Refused) failed("graph", "No e-graph", answer, againButton(graph));
  else showGraph(answer.svg);
}

function showGraph(svg) {
  URL.revokeObjectURL(graphUrl);
  graphUrl = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  // As an image, an SVG runs nothing and loads nothing.
  const image = make("img", { src: graphUrl, alt: `e-graph of statement ${state.session.statement}` });
  const button = make("button", { class: "picture", "aria-label": "The e-graph: actual size, and back", title: "Actual size, and back" }, image);
  button.addEventListener("click", () => image.classList.toggle("actual"));
  $("graph").replaceChildren(button);
}

// Save the kernel whose code is shown, as the file that `selector.load` reads.
export async function download() {
  const name = /^module ([A-Za-z_]\w*)/m.exec(state.answers.reasons?.selected ?? "")?.[1] ?? "program";
  const file = await answered(kernelFile(state.kernel));
  if (file instanceof Refused) {
    complain(file, file.status === 404 ? compile : download);
    return;
  }
  const url = URL.createObjectURL(file);
  make("a", { href: url, download: `${name}.kernel` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
