// Two targets or two versions side by side: the program of the page, and the other side, which is the
// same program or a version that was held, for a target of its own.

import { machineText, painted } from "./code.js";
import { ranges, rows } from "./diff.js";
import { measures } from "./facts.js";
import { pieces } from "./highlight.js";
import { $, make } from "./panes.js";
import { answered, post, Refused } from "./service.js";
import { COMPARED, question, version } from "./session.js";
import { layOut } from "./split.js";
import { state, unanswered } from "./state.js";

const AROUND = 3; // equal lines that are shown beside a difference
const FOLDED = 10; // equal lines from which on those in between are folded
let others = unanswered();

const LANGUAGE = { selected: "ir", cuda: "cuda", sass: "sass" };
// Addresses of machine code move with every line above: they are no difference.
const ADDRESS = /^(?:\/\*[0-9a-f]+\*\/)?/;
const afterAddress = (line) => ADDRESS.exec(line)[0].length;
const key = (line) => line.slice(afterAddress(line)).trim();

const TEXTS = {
  selected: ({ reasons }) => told(reasons, (r) => r.selected),
  cuda: ({ code }) => told(code, (c) => c.source),
  sass: ({ code, machine }) => (code instanceof Refused ? code : told(machine, (m) => machineText(m.sass))),
};

// The text of an answer, the refusal in its place, or null.
const told = (answer, read) => (answer && !(answer instanceof Refused) ? read(answer) : answer);

// Ask about the other side, when there is one.
export async function askOther(signal) {
  const { other } = state.session;
  others = unanswered();
  if (!other) return;
  compareNow();
  const held = other.held ?? version(state.session);
  const body = question(held, other.target);
  const strict = { ...body, strict: held.strict };
  const ask = async (name, path, what) => {
    const answer = await answered(post(path, what, signal, () => {}));
    if (signal.aborted) return;
    others[name] = answer;
    compareNow();
  };
  await Promise.all([ask("code", "v1/compile", strict), ask("reasons", "v1/explain", body)]);
  if (signal.aborted || others.code instanceof Refused || other.target === "amx") return;
  await ask("machine", "v1/compile", { ...strict, sass: true });
}

// Show the comparison as far as there are answers, or take it away.
export function compareNow() {
  const { session } = state;
  const on = Boolean(session.other);
  const main = document.querySelector("main");
  if (main.classList.contains("comparing") !== on) {
    main.classList.toggle("comparing", on);
    layOut();
  }
  $("pane-compare").hidden = !on;
  $("panes").querySelector("[data-pane=compare]").hidden = !on;
  $("compare").setAttribute("aria-pressed", String(on));
  for (const name of COMPARED) {
    const tab = $(`tab-compare-${name}`);
    tab.setAttribute("aria-selected", String(name === session.compared));
    tab.tabIndex = name === session.compared ? 0 : -1;
    if (name === session.compared) $("difference").setAttribute("aria-labelledby", tab.id);
  }
  if (!on) return;
  $("this-side").textContent = `for ${session.target}`;
  $("other-name").textContent = session.other.held ? "The version held" : "The same program";
  $("other-target").value = session.other.target;
  $("hold").textContent = session.other.held ? "Hold this version instead" : "Hold this version";
  showMeasures();
  showDifferences();
}

function showMeasures() {
  const [left, right] = [measures(state.answers), measures(others)];
  const body = left.flatMap(([label, text], i) => {
    const other = right[i][1];
    if (!text && !other) return [];
    const cell = (value) => make("td", { class: text && other && text !== other ? "unlike" : null }, value || "–");
    return [make("tr", {}, make("th", { scope: "row" }, label), cell(text), cell(other))];
  });
  const head = make("tr", {}, make("td"), make("th", { scope: "col" }, "this program"), make("th", { scope: "col" }, "other side"));
  $("measures").replaceChildren(...(body.length ? [make("table", {}, make("colgroup", {}, make("col"), make("col"), make("col")), make("thead", {}, head), make("tbody", {}, ...body))] : []));
}

let drawn = [];

function showDifferences() {
  const { compared } = state.session;
  const texts = [state.answers, others].map((answers) => TEXTS[compared](answers));
  const now = [compared, ...texts];
  if (now.every((part, i) => part && part === drawn[i])) return; // what was unfolded stays so
  drawn = now;
  const count = texts.every((text) => typeof text === "string") ? drawRows(compared, texts) : drawLack(texts);
  $("next-difference").textContent = count === 1 ? "1 difference" : `${count} differences`;
  $("next-difference").hidden = !count;
}

// Why there is nothing to compare: of each side.
function drawLack(texts) {
  const cells = texts.map((text, i) => {
    const side = i ? "other side" : "this program";
    if (text instanceof Refused) {
      const { what, why, hint } = text.error;
      return make("div", { class: "failed" }, make("p", {}, make("b", {}, `No code for the ${side}: `), what),
        make("p", {}, why ?? ""), make("p", { class: "note" }, hint ? `Hint: ${hint}` : ""));
    }
    const amx = state.session.compared === "sass" && (i ? state.session.other.target : state.session.target) === "amx";
    const lack = amx ? "There is no machine code for amx." : "Waiting for the service…";
    return make("p", { class: "empty" }, typeof text === "string" ? "This side is there; the other is not." : lack);
  });
  $("difference").replaceChildren(make("div", { class: "pairs" }, ...cells));
  return 0;
}

// The lines of both sides; how many differences there are.
function drawRows(compared, texts) {
  const sides = texts.map((text) => text.replace(/\n$/, ""));
  const lines = sides.map((text) => text.split("\n"));
  const parts = sides.map((text) => pieces(LANGUAGE[compared], text));
  const all = rows(...lines.map((some) => some.map(key)));
  const box = make("div", { class: "pairs" });
  let count = 0;
  for (let from = 0; from < all.length; ) {
    const same = all[from].same;
    let to = from;
    while (to < all.length && all[to].same === same) to += 1;
    const block = all.slice(from, to);
    if (same) addEqual(box, block, lines, parts, [from > 0, to < all.length]);
    else {
      count += 1;
      block.forEach((row, i) => box.append(...cells(row, lines, parts, i === 0)));
    }
    from = to;
  }
  if (!count) box.prepend(make("p", { class: "empty all" }, "Both sides are the same."));
  $("difference").replaceChildren(box);
  return count;
}

// Equal lines; of many, those beside differences, and a button for the rest.
function addEqual(box, block, lines, parts, [before, after]) {
  const head = before ? AROUND : 0;
  const tail = after ? AROUND : 0;
  const draw = (some) => some.flatMap((row) => cells(row, lines, parts, false));
  if (block.length < FOLDED + head + tail) {
    box.append(...draw(block));
    return;
  }
  const middle = block.slice(head, block.length - tail);
  const button = make("button", { class: "fold" }, `${middle.length} equal lines`);
  button.addEventListener("click", () => button.replaceWith(...draw(middle)));
  box.append(...draw(block.slice(0, head)), button, ...draw(tail ? block.slice(-tail) : []));
}

function cells({ left, right, same }, lines, parts, first) {
  const both = left >= 0 && right >= 0;
  const marks = same || !both ? [[], []] : differing(lines[0][left], lines[1][right]);
  return [left, right].map((line, side) => {
    const kind = same ? "" : line < 0 ? " gap" : side ? " added" : " removed";
    const attributes = { class: `row${kind}${first && !side ? " first" : ""}`, "data-line": line < 0 ? "" : line + 1 };
    return make("div", attributes, ...(line < 0 ? [] : painted(parts[side][line], marks[side])));
  });
}

function differing(left, right) {
  const heads = [left, right].map(afterAddress);
  const found = ranges(left.slice(heads[0]), right.slice(heads[1]));
  return found.map((some, side) => some.map((range) => range.map((at) => at + heads[side])));
}

// The other side: the next target of the same family, to begin with.
export function beginComparison(targets) {
  const { session } = state;
  const family = targets.find((t) => t.name === session.target)?.family;
  const others = targets.filter((t) => t.name !== session.target && t.family === family);
  const run = others.filter((t) => !t.compile_only);
  session.other = { target: (run.at(-1) ?? others.at(-1) ?? targets.find((t) => t.name !== session.target) ?? targets[0]).name, held: null };
}

export function hold() {
  const { session } = state;
  session.other = { target: session.target, held: version(session) };
}

// Exchange the sides: the session takes the other's program and target.
export function swapped(session) {
  const { target, held } = session.other;
  const mine = version(session);
  if (!held) return { ...session, target, other: { target: session.target, held: null } };
  const { kind, text, rules, only, strict } = held;
  return { ...session, kind, [kind]: text, rules, only, strict, target, example: "", other: { target: session.target, held: mine } };
}
