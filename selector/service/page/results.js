// The answers of the service, put into the panes.

import { draw, showLine } from "./editor.js";
import { machineLines, programLines, selectedLines, sourceLines } from "./linking.js";
import { $, empty, lines, notice, stages, statements } from "./panes.js";
import { Refused } from "./service.js";
import { chosen, nothing, request, state } from "./state.js";
import { mark, reveal, showRules } from "./statements.js";

export const RESULTS = ["selected", "cuda", "sass", "why", "rules"];

export function say(kind, text) {
  Object.assign($("status"), { className: kind, textContent: text, title: text });
}

export function busy(ids, on) {
  for (const id of ids) $(id).setAttribute("aria-busy", String(on));
}

// A kernel can be downloaded while its code is shown.
function offerKernel(artifact) {
  state.kernel = artifact;
  $("download").hidden = !artifact;
}

// How many lines of a pane hold tensor instructions.
export function showCount() {
  const count = state.tensorLines[state.session.tab] ?? 0;
  $("next-tensor").textContent = `next of ${count} tensor lines`;
  $("next-tensor").hidden = !count;
}

export function clear(text) {
  busy([...RESULTS, "graph"], false);
  $("notice").hidden = true;
  state.shown = nothing();
  state.machineOf = "";
  for (const id of [...RESULTS, "graph"]) empty(id, text);
  for (const id of ["stages", "rules-of"]) $(id).textContent = "";
  offerKernel("");
  state.tensorLines = {};
  showCount();
  draw([], new Set(), -1);
}

// The outcomes of the two questions about the program `body`; the error, if there was one.
export function show(body, code, reasons) {
  const refused = [code, reasons].find((r) => r.status === "rejected")?.reason ?? null;
  if (refused && !(refused instanceof Refused)) throw refused;
  if (reasons.status === "rejected") {
    clear("There is nothing to show: see the message above.");
    state.shown.error = place(refused.error);
    draw([], new Set(), state.shown.error);
    if (state.shown.error >= 0) showLine(state.shown.error);
  } else showReasons(body, reasons.value);
  if (refused) notice(refused);
  else $("notice").hidden = true;
  if (code.status === "fulfilled") showCode(code.value);
  else if (reasons.status === "fulfilled") {
    for (const id of ["cuda", "sass"]) empty(id, `No code: ${code.reason.error.what}`);
    $("stages").textContent = "";
    offerKernel("");
    state.tensorLines = {};
    showCount();
    state.machineOf = "";
  }
  mark();
  if (state.jump) reveal(null);
  state.jump = false;
  return refused;
}

function showReasons(body, answer) {
  const { report } = answer;
  const numbers = programLines(body.ir, report.statements);
  const missed = new Set(report.statements.flatMap((s, i) => (s.miss ? [i + 1] : [])));
  const updates = report.statements.flatMap((s, i) => (s.instruction ? [i + 1] : []));
  state.shown = { report, ir: body.ir, numbers, missed, error: -1, updates };
  if (!chosen()) state.session.statement = missed.size ? firstMiss(report.statements) : (updates[0] ?? 0);
  draw(numbers, missed, -1);
  statements(report);
  lines("selected", answer.selected, selectedLines(answer.selected, body.ir, numbers));
  showRules();
  const told = report.statements.length;
  if (missed.size) say("wrong", `${missed.size} of ${told} statements not selected`);
  else say("good", told ? `selected: all ${told} statements` : "compiled: no statement for a tensor unit");
}

// The miss that says the most: one with a hint, not one that another caused.
function firstMiss(all) {
  const best = all.findIndex((s) => s.miss && s.hint);
  return (best >= 0 ? best : all.findIndex((s) => s.miss)) + 1;
}

function showCode(answer) {
  const amx = state.session.target === "amx";
  const count = lines("cuda", answer.source, sourceLines(answer.source, answer.report.statements), "cuda");
  $("tab-cuda").textContent = amx ? "C" : "CUDA";
  stages(answer);
  offerKernel(answer.artifact);
  let machine = 0;
  state.machineOf = "";
  if (answer.sass) {
    const text = Object.values(answer.sass).join("\n");
    machine = lines("sass", text, machineLines(text, answer.report.statements), "sass");
    state.machineOf = JSON.stringify([request(), state.session.strict]);
    state.jump ||= state.session.tab === "sass";
  } else empty("sass", amx ? "There is no SASS for amx: its C is compiled where it runs." : "Machine code is made when this tab is open.");
  state.tensorLines = { cuda: count, sass: machine };
  showCount();
}

// The line (from 0) of the program that an error speaks of, or -1.
function place(error) {
  const found = /^program:(\d+):/.exec(error.where?.location ?? "");
  return found ? Number(found[1]) - 1 : -1;
}
