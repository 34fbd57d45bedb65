// The explorer: what the user does, and where it begins.

import { compile as ask, complain, download, graph } from "./asking.js";
import { draw, lineAtCursor, lineAtPointer } from "./editor.js";
import { listenToKeys } from "./keys.js";
import { arrows, enlarge, hover, nextTensor, openEditor, select } from "./layout.js";
import { $, empty, make } from "./panes.js";
import { RESULTS, say, showCount } from "./results.js";
import { get, Refused } from "./service.js";
import { fresh, fromFragment, keep, kept, TABS, toFragment } from "./session.js";
import { nothing, request, state } from "./state.js";
import { choose, mark, neighbour, reveal } from "./statements.js";

const PAUSE = 350; // milliseconds between the last change and the request
let examples = [];
let targets = [];
let timer = 0;

// ---- the session

function compile() {
  clearTimeout(timer);
  void remember();
  return ask();
}

function changed(pause = PAUSE) {
  keep(state.session);
  clearTimeout(timer);
  timer = setTimeout(compile, pause);
  say("busy", "…");
}

let writing = Promise.resolve();
function remember() {
  keep(state.session);
  writing = writing.then(async () => {
    history.replaceState(null, "", await toFragment(state.session));
  });
  return writing;
}

function restore(session) {
  state.session = session;
  $("ir").value = session.ir;
  $("own").value = session.rules;
  $("strict").checked = session.strict;
  if (targets.some((t) => t.name === session.target)) $("target").value = session.target;
  else session.target = $("target").value;
  offerInstructions();
  $("example").value = examples.some((e) => e.name === session.example && e.ir === session.ir) ? session.example : "";
  showTab(session.tab);
  Object.assign(state, { shown: nothing(), jump: true });
  draw([], new Set(), -1);
  void compile();
}

const ofExample = (e) => ({ ...fresh(), ir: e.ir, target: e.target, example: e.name, tab: state.session.tab });

// Whether the address had a session, or what was meant to be one.
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

async function copyLink() {
  await remember();
  try {
    await navigator.clipboard.writeText(location.href);
    say("good", "link copied");
  } catch {
    say("", "the address of this page is the link: copy it from there");
  }
}

// ---- what can be chosen

function offerExamples() {
  const groups = new Map();
  for (const e of examples) {
    if (!groups.has(e.group)) groups.set(e.group, make("optgroup", { label: e.group }));
    groups.get(e.group).append(make("option", { value: e.name }, `${e.name} (${e.target})`));
  }
  $("example").replaceChildren(make("option", { value: "" }, "own program"), ...groups.values());
}

// The families and instructions of the target: the name of an instruction begins with its family's.
function offerInstructions() {
  const { session } = state;
  const names = targets.find((t) => t.name === session.target)?.instructions ?? [];
  const families = [...new Set(names.map((name) => name.split(".")[0]))];
  const group = (label, values) => make("optgroup", { label }, ...values.map((v) => make("option", { value: v }, v)));
  $("only").replaceChildren(make("option", { value: "" }, "any instruction"), group("a family", families), group("one", names));
  if (![...families, ...names].includes(session.only)) session.only = "";
  $("only").value = session.only;
}

// ---- statements and tabs

function take(number, from = null) {
  if (!choose(number, from)) return;
  void remember();
  if (state.session.tab === "graph") void graph();
}

const tensor = () => nextTensor($(state.session.tab));

function showTab(name) {
  state.session.tab = name;
  for (const tab of TABS) select(`tab-${tab}`, tab, tab === name);
  showCount();
  if (state.shown.report) reveal("ir");
}

function openTab(name) {
  showTab(name);
  void remember();
  if (name === "graph" && state.shown.report) void graph();
  const wanted = JSON.stringify([request(), state.session.strict]);
  if (name === "sass" && state.session.target !== "amx" && state.machineOf !== wanted) void compile();
}

// ---- events

function listen() {
  listenToChoices();
  listenToStatements();
  const clicks = { run: compile, link: copyLink, download, keys: () => $("help").showModal(), "next-tensor": tensor };
  for (const [id, does] of Object.entries(clicks)) $(id).addEventListener("click", does);
  $("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment is the session's
    $("ir").focus();
  });
  for (const tab of TABS) $(`tab-${tab}`).addEventListener("click", () => openTab(tab));
  for (const each of ["ir", "own"]) $(`tab-${each}`).addEventListener("click", () => openEditor(each));
  for (const list of document.querySelectorAll("[role=tablist]")) list.addEventListener("keydown", arrows);
  for (const button of document.querySelectorAll(".large")) {
    button.addEventListener("click", () => enlarge(button.closest(".pane")));
  }
  const step = (by) => take(neighbour(by));
  listenToKeys({ compile, copyLink, download, enlarge, nextTensor: tensor, openTab, step });
  window.addEventListener("hashchange", () => void fromAddress());
}

function listenToChoices() {
  $("ir").addEventListener("input", () => {
    const { session, shown } = state;
    session.ir = $("ir").value;
    session.example = "";
    $("example").value = "";
    const same = shown.ir.split("\n").length === session.ir.split("\n").length;
    draw(same ? shown.numbers : [], shown.missed, -1);
    mark();
    changed();
  });
  $("own").addEventListener("input", () => {
    state.session.rules = $("own").value;
    changed();
  });
  $("target").addEventListener("change", () => {
    state.session.target = $("target").value;
    offerInstructions();
    changed(0);
  });
  $("only").addEventListener("change", () => {
    state.session.only = $("only").value;
    changed(0);
  });
  $("strict").addEventListener("change", () => {
    state.session.strict = $("strict").checked;
    changed(0);
  });
  $("example").addEventListener("change", () => {
    const found = examples.find((e) => e.name === $("example").value);
    if (found) restore(ofExample(found));
  });
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
    if (node && !String(getSelection())) take(Number(node.dataset.statement), node.closest(".body")?.id);
  });
  $("ir").addEventListener("mousemove", (event) => hover(state.shown.numbers[lineAtPointer(event)] ?? 0));
  for (const name of ["click", "keyup"]) {
    $("ir").addEventListener(name, () => {
      if (state.shown.ir === state.session.ir) take(state.shown.numbers[lineAtCursor()] ?? 0, "ir");
    });
  }
}

// ---- the beginning

// Whether what the service runs for others is walled in; a service that is starting does not know yet.
async function tellConfinement() {
  try {
    const { confined } = await get("healthz");
    $("confined").textContent = confined ? "workers confined" : "workers not confined";
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

async function begin() {
  say("busy", "loading");
  try {
    const [programs, offered, all] = await Promise.all([get("page/examples.json"), get("v1/targets"), get("v1/rules")]);
    examples = programs.examples;
    targets = offered.targets;
    state.known = new Map(all.rules.map((rule) => [rule.name, rule]));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    complain(error, begin);
    return;
  }
  $("notice").hidden = true;
  $("target").replaceChildren(...targets.map((t) => make("option", { value: t.name }, t.name)));
  offerExamples();
  const reloaded = performance.getEntriesByType("navigation")[0]?.type === "reload" ? kept() : null;
  if (reloaded) restore(reloaded);
  else if (!(await fromAddress())) restore(ofExample(examples.find((e) => e.name === "conv1d") ?? examples[0]));
}

for (const id of [...RESULTS, "graph"]) empty(id, "Loading…");
listen();
void tellConfinement();
void begin();
