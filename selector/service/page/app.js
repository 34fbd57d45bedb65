// The explorer: what the user does, and where it begins.

import { compile as ask, complain, download, graph } from "./asking.js";
import { beginComparison, compareNow, hold, swapped } from "./compare.js";
import { ownRules, program } from "./editor.js";
import { fillGallery, listenToGallery, openGallery } from "./gallery.js";
import { listenToKeys } from "./keys.js";
import { arrows, enlarge, hover, listenToWrapping, nextOf, openEditor, select, showPane } from "./layout.js";
import { $, empty, make } from "./panes.js";
import { clear, drawProgram, RESULTS, say, showCount } from "./results.js";
import { answered, get, Refused } from "./service.js";
import { COMPARED, fresh, keep, kept, TABS } from "./session.js";
import { leaveLink, linked, listenToSharing, openLink } from "./sharing.js";
import { listenToSplits } from "./split.js";
import { nothing, state, text } from "./state.js";
import { choose, mark, neighbour, reveal } from "./statements.js";

const PAUSE = 350; // milliseconds between the last change and the request
const FIRST = "conv1d"; // the example of the first visit
const ABOUT = {
  ir: "Write or paste a program in the text form of Halide's loop IR, or choose an example",
  python: "Write a pipeline in Halide's Python, with hb.store_in for what goes to a tensor unit",
};
let examples = [];
let targets = [];
let timer = 0;

// ---- the session

function compile() {
  clearTimeout(timer);
  keep(state.session);
  return ask();
}

function changed(pause = PAUSE) {
  keep(state.session);
  leaveLink();
  clearTimeout(timer);
  timer = setTimeout(compile, pause);
  say("busy", "…");
}

function restore(session) {
  state.session = session;
  $("program").value = text();
  $("own").value = session.rules;
  $("strict").checked = session.strict;
  $("auto").checked = session.auto;
  if (targets.some((t) => t.name === session.target)) $("target").value = session.target;
  else session.target = $("target").value;
  offerInstructions();
  if (!examples.some((e) => e.name === session.example && e.text === text())) session.example = "";
  showKind();
  showTab(session.tab);
  Object.assign(state, { shown: nothing(), jump: true });
  drawProgram();
  void compile();
}

const ofExample = (e) => ({ ...fresh(), kind: e.kind, [e.kind]: e.text, target: e.target, example: e.name, tab: state.session.tab });

function openExample(example) {
  restore(ofExample(example));
  leaveLink();
}

// What the address, a reload or a first visit begins with.
async function first() {
  if (!linked()) {
    restore(kept() ?? ofExample(examples.find((e) => e.name === FIRST) ?? examples[0]));
    return;
  }
  const found = await answered(openLink(linked()));
  if (found instanceof Refused) {
    clear("The link could not be opened: see the message above. Examples are at the top.");
    complain(found, begin);
  } else restore(found);
}

// ---- what can be chosen

// The families and instructions of the target: the name of an instruction begins with its family's.
function offerInstructions() {
  const { session } = state;
  const names = targets.find((t) => t.name === session.target)?.instructions ?? [];
  const families = [...new Set(names.map((name) => name.split(".")[0]))];
  const group = (label, values) => make("optgroup", { label }, ...values.map((v) => make("option", { value: v }, v)));
  $("only").replaceChildren(make("option", { value: "" }, "any"), group("a family", families), group("one", names));
  if (![...families, ...names].includes(session.only)) session.only = "";
  $("only").value = session.only;
}

// What the program is written in, and which example it is.
function showKind() {
  const { kind, example } = state.session;
  $("kind").value = kind;
  $("auto").parentElement.hidden = kind !== "python";
  $("program").placeholder = ABOUT[kind];
  $("stages-of-program").hidden = kind !== "python";
  $("selected-name").hidden = kind === "python";
  if (kind !== "python") openStage("selected");
  $("example").textContent = example ? `Example: ${example.replace(/\.vir$/, "")}` : "Examples";
}

function openStage(name) {
  for (const each of ["lowered", "selected"]) select(`tab-${each}`, each, each === name);
}

// ---- statements and tabs

function take(number, from = null) {
  if (!choose(number, from)) return;
  keep(state.session);
  if (state.session.tab === "graph") void graph();
}

// The next tensor instruction, or the next difference.
function next() {
  if (state.session.other) nextOf($("comparison"), ".row.first");
  else nextOf($(state.session.tab), ".row.tensor");
}

function showTab(name) {
  state.session.tab = name;
  for (const tab of TABS) select(`tab-${tab}`, tab, tab === name);
  showCount();
  if (state.shown.report) reveal("program");
}

function openTab(name) {
  showTab(name);
  keep(state.session);
  if (name === "graph" && state.shown.report) void graph();
}

function openCompared(name) {
  state.session.compared = name;
  keep(state.session);
  compareNow();
}

// ---- two sides

function toggleComparison() {
  if (state.session.other) state.session.other = null;
  else beginComparison(targets);
  if (state.session.other) showPane("compare");
  else showPane("program");
  compareNow();
  changed(0);
}

function holdVersion() {
  hold();
  showPane("compare");
  compareNow();
  changed(0);
}

function swap() {
  restore(swapped(state.session));
  leaveLink();
}

// ---- events

function listen() {
  listenToChoices();
  listenToStatements();
  listenToPanes();
  listenToSplits();
  listenToWrapping();
  listenToGallery();
  listenToSharing();
  const clicks = {
    run: compile, download, examples: openGallery, keys: () => $("help").showModal(), "next-tensor": next,
    "next-difference": next, compare: toggleComparison, "close-compare": toggleComparison, hold: holdVersion, swap,
  };
  for (const [id, does] of Object.entries(clicks)) $(id).addEventListener("click", does);
  const step = (by) => take(neighbour(by));
  listenToKeys({ compile, next, openTab, step, hold: holdVersion });
}

function listenToPanes() {
  $("skip").addEventListener("click", (event) => {
    event.preventDefault();
    showPane("program");
    $("program").focus();
  });
  for (const tab of TABS) $(`tab-${tab}`).addEventListener("click", () => openTab(tab));
  for (const tab of COMPARED) $(`tab-compare-${tab}`).addEventListener("click", () => openCompared(tab));
  for (const each of ["program", "own"]) $(`tab-${each}`).addEventListener("click", () => openEditor(each));
  for (const each of ["lowered", "selected"]) $(`tab-${each}`).addEventListener("click", () => openStage(each));
  for (const list of document.querySelectorAll("[role=tablist]")) list.addEventListener("keydown", arrows);
  for (const button of document.querySelectorAll(".large")) {
    button.addEventListener("click", () => enlarge(button.closest(".pane")));
  }
  for (const button of $("panes").children) button.addEventListener("click", () => showPane(button.dataset.pane));
}

function listenToChoices() {
  const { area } = program;
  area.addEventListener("input", () => {
    const { session, shown } = state;
    session[session.kind] = area.value;
    session.example = "";
    showKind();
    const same = shown.text.split("\n").length === area.value.split("\n").length;
    drawProgram({ numbers: same ? shown.numbers : [], missed: shown.missed, error: -1 });
    mark();
    changed();
  });
  ownRules.area.addEventListener("input", () => {
    state.session.rules = ownRules.area.value;
    ownRules.draw("egg");
    changed();
  });
  $("kind").addEventListener("change", () => {
    restore({ ...state.session, kind: $("kind").value });
    leaveLink();
  });
  const choices = {
    target: () => $("target").value, only: () => $("only").value,
    strict: () => $("strict").checked, auto: () => $("auto").checked,
  };
  for (const [name, value] of Object.entries(choices)) {
    $(name).addEventListener("change", () => {
      state.session[name] = value();
      if (name === "target") offerInstructions();
      changed(0);
    });
  }
  $("other-target").addEventListener("change", () => {
    state.session.other.target = $("other-target").value;
    changed(0);
  });
}

function listenToStatements() {
  const main = document.querySelector("main");
  const numberOf = (node) => parseInt(node?.dataset.statement ?? "0", 10);
  main.addEventListener("mouseover", (event) => {
    if (event.target !== program.area) hover(numberOf(event.target.closest("[data-statement]")));
  });
  main.addEventListener("mouseleave", () => hover(0));
  main.addEventListener("click", (event) => {
    const node = event.target.closest("[data-statement]");
    if (node && !String(getSelection())) take(numberOf(node), node.closest(".body")?.id);
  });
  const numberAt = (line) => parseInt(state.shown.numbers[line], 10) || 0;
  program.area.addEventListener("mousemove", (event) => hover(numberAt(program.lineAtPointer(event))));
  for (const name of ["click", "keyup"]) {
    program.area.addEventListener(name, () => {
      if (state.shown.text === text()) take(numberAt(program.lineAtCursor()), "program");
    });
  }
}

// ---- the beginning

// Whether what the service runs for others is walled in; one that is starting does not know yet.
async function askHealth() {
  const health = await answered(get("healthz"));
  if (health instanceof Refused) {
    if (health.status === 503) setTimeout(askHealth, 2000);
    return;
  }
  $("confined").textContent = health.confined ? "workers confined" : "workers not confined";
}

async function begin() {
  say("busy", "loading");
  const answers = await Promise.all(["page/examples.json", "v1/targets", "v1/rules"].map((path) => answered(get(path))));
  const refused = answers.find((answer) => answer instanceof Refused);
  if (refused) {
    for (const id of [...RESULTS, "graph"]) empty(id, "There is nothing yet: see the message above.");
    complain(refused, begin);
    return;
  }
  const [programs, offered, all] = answers;
  examples = programs.examples.filter((e) => e.kind === "ir" || offered.python_input);
  targets = offered.targets;
  $("kind").hidden = !offered.python_input;
  state.known = new Map(all.rules.map((rule) => [rule.name, rule]));
  $("notice").hidden = true;
  for (const id of ["target", "other-target"]) $(id).replaceChildren(...targets.map((t) => make("option", { value: t.name }, t.compile_only ? `${t.name} (compile-only)` : t.name)));
  fillGallery(examples, openExample);
  showKind();
  offerInstructions();
  await first();
}

for (const id of [...RESULTS, "graph"]) empty(id, "Loading…");
listen();
void askHealth();
void begin();
