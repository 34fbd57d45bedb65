// The answers of the service, put into the panes.

import { machineText, show as showCode } from "./code.js";
import { compareNow } from "./compare.js";
import { ownRules, program } from "./editor.js";
import { facts, noFacts } from "./facts.js";
import { machineLines, placedLines, programLines, selectedLines, sourceLines } from "./linking.js";
import { $, empty, failed, notice, stages, statements } from "./panes.js";
import { Refused } from "./service.js";
import { chosen, nothing, state, unanswered } from "./state.js";
import { mark, reveal, showRules } from "./statements.js";

export const RESULTS = ["lowered", "selected", "cuda", "kernels", "sass", "why", "rules"];
const NO_KERNELS = "There are no kernels for amx: its C is one function.";
const NO_MACHINE = "There is no machine code for amx: its C is compiled where it runs.";

export function say(kind, text) {
  Object.assign($("status"), { className: kind, textContent: text, title: text });
}

export function busy(ids, on) {
  for (const id of ids) $(id).setAttribute("aria-busy", String(on));
}

export function drawProgram(marks) {
  program.draw(state.session.kind, marks);
  ownRules.draw("egg");
}

// A kernel can be downloaded while its code is shown.
function offerKernel(artifact) {
  state.kernel = artifact;
  $("download").hidden = !artifact;
}

// How many lines of a pane hold tensor instructions.
export function showCount() {
  const count = state.tensorLines[state.session.tab] ?? 0;
  $("next-tensor").textContent = count === 1 ? "1 tensor line" : `${count} tensor lines`;
  $("next-tensor").hidden = !count;
}

export function clear(text) {
  busy([...RESULTS, "graph"], false);
  $("notice").hidden = true;
  state.shown = nothing();
  state.answers = unanswered();
  for (const id of [...RESULTS, "graph"]) empty(id, text);
  for (const id of ["stages", "rules-of"]) $(id).textContent = "";
  noFacts("");
  offerKernel("");
  state.tensorLines = {};
  showCount();
  drawProgram();
  compareNow();
}

// The answers about the program `text`; the refusal, if there was one.
export function show(text) {
  const { code, reasons } = state.answers;
  const refused = [code, reasons].find((answer) => answer instanceof Refused) ?? null;
  if (reasons instanceof Refused) refuseAll(reasons);
  else showReasons(text, reasons);
  if (refused) notice(refused);
  else $("notice").hidden = true;
  if (!(code instanceof Refused)) showSource(code);
  else if (!(reasons instanceof Refused)) {
    failed("cuda", "No code", code);
    failed("kernels", "No kernels", code);
    $("stages").textContent = "";
    offerKernel("");
    state.tensorLines = {};
    showCount();
  }
  mark();
  if (state.jump) reveal(null);
  state.jump = false;
  compareNow();
  return refused;
}

const WITHOUT = { lowered: "Nothing lowered", selected: "Nothing selected", cuda: "No code", kernels: "No kernels", sass: "No machine code", graph: "No e-graph", why: "No reasons", rules: "No rules" };

function refuseAll(refused) {
  const { answers } = state;
  clear("");
  state.answers = answers;
  for (const [id, intro] of Object.entries(WITHOUT)) failed(id, intro, refused);
  state.shown.error = place(refused.error);
  drawProgram(state.shown);
  if (state.shown.error >= 0) program.show(state.shown.error);
}

function showReasons(text, answer) {
  const { report, ir, selected } = answer;
  const python = state.session.kind === "python";
  const before = python ? ir : text;
  const stores = programLines(before, report.statements);
  const numbers = python ? placedLines(report.statements) : stores;
  const missed = new Set(report.statements.flatMap((s, i) => (s.miss ? [i + 1] : [])));
  const updates = report.statements.flatMap((s, i) => (s.instruction ? [i + 1] : []));
  state.shown = { report, text, numbers, missed, error: -1, updates };
  if (!chosen()) state.session.statement = missed.size ? firstMiss(report.statements) : (updates[0] ?? 0);
  drawProgram(state.shown);
  statements(report);
  showCode("selected", "ir", selected, selectedLines(selected, before, stores));
  if (python) showCode("lowered", "ir", before, stores);
  showRules();
  const all = report.statements.length;
  if (missed.size) say("wrong", `${missed.size} of ${all} statements not selected`);
  else say("good", all ? `selected: all ${all} statements` : "compiled: no statement for a tensor unit");
}

// The miss that says the most: one with a hint, not one that another caused.
function firstMiss(all) {
  const best = all.findIndex((s) => s.miss && s.hint);
  return (best >= 0 ? best : all.findIndex((s) => s.miss)) + 1;
}

function showSource(answer) {
  const shown = (id, text) => showCode(id, id, text, sourceLines(id, text, answer.report.statements));
  state.tensorLines = { cuda: shown("cuda", answer.source) };
  if (answer.kernels) state.tensorLines.kernels = shown("kernels", answer.kernels);
  else empty("kernels", NO_KERNELS);
  empty("sass", "Machine code is being made…");
  stages(answer);
  offerKernel(answer.artifact);
  showCount();
}

// The machine code and what it takes of the GPU; or why there is none.
export function showMachine() {
  const { code, machine } = state.answers;
  if (machine instanceof Refused) {
    failed("sass", "No machine code", machine);
    noFacts(`No machine code: ${machine.error.what}`);
  } else if (machine) {
    const text = machineText(machine.sass);
    state.tensorLines.sass = showCode("sass", "sass", text, machineLines(text, machine.report.statements));
    facts(machine.resources);
    showCount();
    mark();
    if (state.session.tab === "sass") reveal(null);
  } else if (code instanceof Refused) {
    failed("sass", "No machine code", code);
    noFacts("");
  } else {
    empty("sass", NO_MACHINE);
    noFacts(NO_MACHINE);
  }
  compareNow();
}

// The line (from 0) of the program that an error speaks of, or -1.
function place(error) {
  const found = /^program:(\d+)/.exec(error.where?.location ?? "");
  return found ? Number(found[1]) - 1 : -1;
}
