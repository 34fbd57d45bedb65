// The explorer: what the user does, what is asked of the service, and what is shown where.

import { draw, lineAtCursor, lineAtPointer, showLine } from "./editor.js";
import { listenToKeys } from "./keys.js";
import { arrows, enlarge, hover, nextTensor, openEditor, select, within } from "./layout.js";
import { machineLines, programLines, selectedLines, sourceLines } from "./linking.js";
import { $, empty, lines, make, notice, rules, stages, statements } from "./panes.js";
import { get, picture, post, Refused, setToken } from "./service.js";
import { fresh, fromFragment, keep, kept, TABS, toFragment } from "./session.js";

const PAUSE = 350; // milliseconds between the last change and the request
let session = fresh();
let examples = [];
let known = new Map(); // rules by name
let shown = { report: null, ir: "", numbers: [], missed: new Set(), error: -1, updates: [] };
let compiling = null; // AbortControllers of what is on its way
let drawing = null;
let timer = 0;
let ticking = 0;
let graphUrl = "";
let jump = false; // a new program: show its chosen statement in every pane
let machineOf = ""; // the request that the SASS shown is of

// ---- the session

function changed(pause = PAUSE) {
  keep(session);
  clearTimeout(timer);
  timer = setTimeout(compile, pause);
  say("busy", "…");
}

let writing = Promise.resolve();
function remember() {
  keep(session);
  writing = writing.then(async () => {
    history.replaceState(null, "", await toFragment(session));
  });
  return writing;
}

function restore(found) {
  session = found;
  $("ir").value = session.ir;
  $("own").value = session.rules;
  $("strict").checked = session.strict;
  if ([...$("target").options].some((o) => o.value === session.target)) $("target").value = session.target;
  $("example").value = examples.some((e) => e.name === session.example && e.ir === session.ir) ? session.example : "";
  showTab(session.tab);
  jump = true;
  shown = { report: null, ir: "", numbers: [], missed: new Set(), error: -1, updates: [] };
  draw([], new Set(), -1);
  clearTimeout(timer);
  compile();
}

// ---- requests

const request = () => ({ ir: session.ir, target: session.target, rules: session.rules });

function say(kind, text) {
  $("status").className = kind;
  $("status").textContent = text;
}

function busy(ids, on) {
  for (const id of ids) $(id).setAttribute("aria-busy", String(on));
}

const RESULTS = ["selected", "cuda", "sass", "why", "rules"];

async function compile() {
  clearTimeout(timer);
  clearInterval(ticking);
  compiling?.abort();
  drawing?.abort();
  const mine = (compiling = new AbortController());
  void remember();
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
  // Both go at once: the reasons are wanted above all where there is no code.
  const [code, reasons] = await Promise.allSettled([
    post("v1/compile", asked, mine.signal),
    post("v1/explain", body, mine.signal),
  ]);
  if (mine !== compiling || mine.signal.aborted) return;
  busy(RESULTS, false);
  show(body, code, reasons);
}

function clear(text) {
  busy([...RESULTS, "graph"], false);
  $("notice").hidden = true;
  shown = { report: null, ir: "", numbers: [], missed: new Set(), error: -1, updates: [] };
  for (const id of [...RESULTS, "graph"]) empty(id, text);
  $("stages").textContent = "";
  $("artifact").textContent = "";
  $("count").textContent = "";
  $("rules-of").textContent = "";
  draw([], new Set(), -1);
}

function show(body, code, reasons) {
  const refused = [code, reasons].find((r) => r.status === "rejected")?.reason;
  if (refused && !(refused instanceof Refused)) throw refused;
  if (reasons.status === "rejected") {
    clear("There is nothing to show: see the message above.");
    shown.error = place(refused.error);
    draw([], new Set(), shown.error);
    if (shown.error >= 0) showLine(shown.error);
  } else showReasons(body, reasons.value);
  if (refused) complain(refused);
  else $("notice").hidden = true;
  if (code.status === "fulfilled") showCode(code.value);
  else if (reasons.status === "fulfilled") {
    for (const id of ["cuda", "sass"]) empty(id, `No code: ${code.reason.error.what}`);
    for (const id of ["stages", "artifact", "count"]) $(id).textContent = "";
    machineOf = "";
  }
  mark();
  if (jump) reveal(null);
  jump = false;
}

function showReasons(body, answer) {
  const { report } = answer;
  const numbers = programLines(body.ir, report.statements);
  const missed = new Set(report.statements.flatMap((s, i) => (s.miss ? [i + 1] : [])));
  const updates = report.statements.flatMap((s, i) => (s.instruction ? [i + 1] : []));
  shown = { report, ir: body.ir, numbers, missed, error: -1, updates };
  if (!chosen()) session.statement = missed.size ? firstMiss() : (updates[0] ?? 0);
  draw(numbers, missed, -1);
  statements(report);
  lines("selected", answer.selected, selectedLines(answer.selected, body.ir, numbers));
  showRules();
  const told = report.statements.length;
  if (missed.size) say("wrong", `${missed.size} of ${told} statements not selected`);
  else say("good", told ? `selected: all ${told} statements` : "compiled: no statement for a tensor unit");
  if (session.tab === "graph") void graph();
  else {
    busy(["graph"], false);
    empty("graph", "The e-graph is drawn when this tab is open.");
  }
}

// The miss that says the most: one with a hint, not one that another caused.
function firstMiss() {
  const all = shown.report.statements;
  const best = all.findIndex((s) => s.miss && s.hint);
  return (best >= 0 ? best : all.findIndex((s) => s.miss)) + 1;
}

function showCode(answer) {
  const count = lines("cuda", answer.source, sourceLines(answer.source, answer.report.statements), "cuda");
  $("tab-cuda").textContent = session.target === "amx" ? "C" : "CUDA";
  stages(answer);
  let machine = 0;
  machineOf = "";
  if (answer.sass) {
    const text = Object.values(answer.sass).join("\n");
    machine = lines("sass", text, machineLines(text, answer.report.statements), "sass");
    machineOf = JSON.stringify([request(), session.strict]);
  } else empty("sass", session.target === "amx" ? "There is no SASS for amx: its C is compiled where it runs." : "Machine code is made when this tab is open.");
  $("count").dataset.cuda = `${count} tensor lines`;
  $("count").dataset.sass = `${machine} tensor lines`;
  $("count").textContent = $("count").dataset[session.tab] ?? "";
}

// The line (from 0) of the program that an error speaks of, or -1.
function place(error) {
  const found = /^program:(\d+):/.exec(error.where?.location ?? "");
  return found ? Number(found[1]) - 1 : -1;
}

function complain(refused, retry = compile) {
  const more = [];
  if (refused.status === 401) more.push(tokenForm());
  else if (!refused.error.where?.func && refused.status !== 422) {
    const again = make("button", {}, "Try again");
    again.addEventListener("click", retry);
    more.push(again);
  }
  notice(refused, more);
  if (!shown.missed.size || refused.status !== 422) say("wrong", refused.error.kind);
  if (refused.wait) {
    let left = refused.wait;
    ticking = setInterval(() => {
      left -= 1;
      say("wrong", `${refused.error.kind}: again in ${left} s`);
      if (left > 0) return;
      clearInterval(ticking);
      void retry();
    }, 1000);
  }
}

function tokenForm() {
  const field = make("input", { type: "password", "aria-label": "Token", autocomplete: "off" });
  const button = make("button", {}, "Use this token");
  const use = () => {
    setToken(field.value.trim());
    void begin();
  };
  button.addEventListener("click", use);
  field.addEventListener("keydown", (event) => event.key === "Enter" && use());
  return make("p", {}, field, " ", button);
}

async function graph() {
  drawing?.abort();
  const mine = (drawing = new AbortController());
  if (!shown.report?.statements.length) {
    empty("graph", "No statement of this program has an e-graph.");
    return;
  }
  busy(["graph"], true);
  const body = request();
  if (chosen()) body.statement = chosen().statement;
  try {
    const found = await picture(body, mine.signal);
    if (mine !== drawing) return;
    URL.revokeObjectURL(graphUrl);
    graphUrl = URL.createObjectURL(found);
    // As an image, an SVG runs nothing and loads nothing.
    const image = make("img", { src: graphUrl, alt: `e-graph of statement ${session.statement}`, title: "Click: actual size, and back" });
    image.addEventListener("click", () => image.classList.toggle("actual"));
    $("graph").replaceChildren(image);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Refused)) throw error;
    empty("graph", [error.error.what, error.error.why, error.error.hint].filter(Boolean).join(": "));
  }
  busy(["graph"], false);
}

// ---- statements

const chosen = () => shown.report?.statements[session.statement - 1];

function showRules() {
  const s = chosen();
  $("rules-of").textContent = s ? `of ${s.func} (${s.stage})` : "of all statements";
  rules(s, shown.report, known);
}

function mark() {
  for (const node of document.querySelectorAll("[data-statement]")) {
    const is = Number(node.dataset.statement) === session.statement;
    node.classList.toggle("chosen", is);
    if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", String(is));
  }
}

function choose(number, from = null) {
  if (!shown.report || !number || number === session.statement) return;
  session.statement = number;
  showRules();
  mark();
  reveal(from);
  void remember();
  if (session.tab === "graph") void graph();
}

// Scroll every pane but one to the chosen statement.
function reveal(from) {
  for (const id of ["selected", "cuda", "sass", "why"]) {
    const node = id === from ? null : $(id).querySelector(`[data-statement="${session.statement}"]`);
    if (node?.offsetParent) within($(id), node);
  }
  const line = shown.numbers.indexOf(session.statement);
  if (from !== "ir" && session.statement && line >= 0) showLine(line);
}

const tensor = () => nextTensor($(session.tab));

function step(by) {
  const count = shown.report?.statements.length ?? 0;
  if (count) choose(((session.statement - 1 + by + count) % count) + 1);
}

// ---- panes and tabs

function showTab(name) {
  session.tab = name;
  for (const tab of TABS) select(`tab-${tab}`, tab, tab === name);
  $("count").textContent = $("count").dataset[name] ?? "";
  $("next-tensor").hidden = name === "graph";
  if (shown.report) reveal("ir");
}

function openTab(name) {
  showTab(name);
  void remember();
  if (name === "graph" && shown.report) void graph();
  const wanted = JSON.stringify([request(), session.strict]);
  if (name === "sass" && session.target !== "amx" && machineOf !== wanted) void compile();
}

async function copyLink() {
  await remember();
  try {
    await navigator.clipboard.writeText(location.href);
    say("good", "link copied");
  } catch {
    say("", "the address of this page is the link: copy it from there");
  }
}

// ---- events

function listen() {
  $("ir").addEventListener("input", () => {
    session.ir = $("ir").value;
    session.example = "";
    $("example").value = "";
    const same = shown.ir.split("\n").length === session.ir.split("\n").length;
    draw(same ? shown.numbers : [], shown.missed, -1);
    mark();
    changed();
  });
  $("own").addEventListener("input", () => {
    session.rules = $("own").value;
    changed();
  });
  $("target").addEventListener("change", () => {
    session.target = $("target").value;
    changed(0);
  });
  $("strict").addEventListener("change", () => {
    session.strict = $("strict").checked;
    changed(0);
  });
  $("example").addEventListener("change", () => {
    const found = examples.find((e) => e.name === $("example").value);
    if (found) restore(ofExample(found));
  });
  $("run").addEventListener("click", compile);
  $("link").addEventListener("click", copyLink);
  $("keys").addEventListener("click", () => $("help").showModal());
  $("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment is the session's
    $("ir").focus();
  });
  $("next-tensor").addEventListener("click", tensor);
  for (const tab of TABS) $(`tab-${tab}`).addEventListener("click", () => openTab(tab));
  for (const each of ["ir", "own"]) $(`tab-${each}`).addEventListener("click", () => openEditor(each));
  for (const list of document.querySelectorAll("[role=tablist]")) list.addEventListener("keydown", arrows);
  for (const button of document.querySelectorAll(".large")) {
    button.addEventListener("click", () => enlarge(button.closest(".pane")));
  }
  listenToStatements();
  listenToKeys({ compile, copyLink, enlarge, nextTensor: tensor, openTab, step });
  window.addEventListener("hashchange", () => void fromAddress());
}

function listenToStatements() {
  const main = document.querySelector("main");
  main.addEventListener("mouseover", (event) => {
    if (event.target.id === "ir") return;
    hover(Number(event.target.closest("[data-statement]")?.dataset.statement ?? 0));
  });
  main.addEventListener("mouseleave", () => hover(0));
  main.addEventListener("click", (event) => {
    const node = event.target.closest("[data-statement]");
    if (node && !String(getSelection())) choose(Number(node.dataset.statement), node.closest(".body")?.id);
  });
  $("ir").addEventListener("mousemove", (event) => hover(shown.numbers[lineAtPointer(event)] ?? 0));
  for (const name of ["click", "keyup"]) {
    $("ir").addEventListener(name, () => {
      if (shown.ir === session.ir) choose(shown.numbers[lineAtCursor()] ?? 0, "ir");
    });
  }
}

// ---- the beginning

const ofExample = (e) => ({ ...fresh(), ir: e.ir, target: e.target, example: e.name, tab: session.tab });

async function fromAddress() {
  try {
    const found = await fromFragment(location.hash);
    if (found) restore(found);
    return found !== null;
  } catch (error) {
    $("notice").replaceChildren(make("p", {}, error.message));
    $("notice").hidden = false;
    say("wrong", "damaged link");
    return true;
  }
}

function offer() {
  const groups = new Map();
  for (const e of examples) {
    if (!groups.has(e.group)) groups.set(e.group, make("optgroup", { label: e.group }));
    groups.get(e.group).append(make("option", { value: e.name }, `${e.name} (${e.target})`));
  }
  $("example").replaceChildren(make("option", { value: "" }, "own program"), ...groups.values());
}

async function begin() {
  say("busy", "loading");
  try {
    const [programs, targets, all] = await Promise.all([get("page/examples.json"), get("v1/targets"), get("v1/rules")]);
    examples = programs.examples;
    known = new Map(all.rules.map((rule) => [rule.name, rule]));
    $("target").replaceChildren(...targets.targets.map((t) => make("option", { value: t.name }, t.name)));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    complain(error, begin);
    return;
  }
  $("notice").hidden = true;
  offer();
  const reloaded = performance.getEntriesByType("navigation")[0]?.type === "reload" ? kept() : null;
  if (reloaded) restore(reloaded);
  else if (!(await fromAddress())) restore(ofExample(examples.find((e) => e.name === "conv1d") ?? examples[0]));
}

for (const id of [...RESULTS, "graph"]) empty(id, "Loading…");
listen();
void begin();
