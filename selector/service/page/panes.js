// What the panes show. Everything from the service becomes text nodes, never markup.

import { painted } from "./code.js";
import { pieces } from "./highlight.js";

export const $ = (id) => document.getElementById(id);

// An element with attributes and children; strings become text.
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c !== "" && c !== null && c !== undefined));
  return node;
}

export function empty(id, text) {
  $(id).replaceChildren(make("p", { class: "empty" }, text));
}

// What became of an answer that did not come: all that the service says, and a way on.
export function failed(id, intro, refused, ...more) {
  const { what, why, hint } = refused.error;
  const box = make("div", { class: "failed" }, make("p", {}, make("b", {}, `${intro}: `), what));
  if (why) box.append(make("p", {}, why));
  if (hint) box.append(make("p", { class: "note" }, `Hint: ${hint}`));
  box.append(...more);
  $(id).replaceChildren(box);
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

const WITHOUT_PRODUCT = {
  init: "accumulator initialisation",
  rescale: "rows of the tile times numbers",
  read: "epilogue",
};

function outcome(s) {
  if (s.instruction) {
    const block = `block ${s.block.join(" × ")}, ${percent(s.useful_share)} of the multiply-adds useful`;
    return [make("span", { class: "is" }, `${s.count} × ${s.instruction}`), make("span", { class: "more" }, block)];
  }
  return WITHOUT_PRODUCT[s.stage] ? [make("span", { class: "more" }, WITHOUT_PRODUCT[s.stage])] : [];
}

// The statements of a report, one button each.
export function statements(report) {
  if (!report.statements.length) {
    empty("why", "No statement of this program is placed on a tensor unit.");
    return;
  }
  const list = make("ol", { class: "statements" });
  report.statements.forEach((s, i) => {
    const state = s.miss ? "missed" : "took";
    const copies = s.copies > 1 ? ` × ${s.copies}` : "";
    const button = make("button", { class: state, "data-statement": i + 1, "aria-pressed": "false" },
      make("span", { class: "what" }, `${s.func} (${s.stage})${copies} `));
    if (s.miss) {
      button.append(make("span", { class: "miss" }, `not selected: ${s.miss}`));
      if (s.hint) button.append(make("span", { class: "more" }, `hint: ${s.hint}`));
    } else button.append(...outcome(s));
    for (const t of s.temporaries) button.append(make("span", { class: "more" }, `temporary: ${t}`));
    for (const t of s.capped) button.append(make("span", { class: "more" }, `the phase ${t} stopped at its cap`));
    if (s.location) button.append(make("span", { class: "more" }, s.location));
    button.append(make("code", { title: s.statement }, s.statement));
    list.append(make("li", {}, button));
  });
  $("why").replaceChildren(list);
}

// The rules of one statement, or (null) of all: the chain that led to the result, and what else matched.
export function rules(chosen, report, known) {
  const from = chosen ? [chosen] : report.statements;
  const chain = unique(from.flatMap((s) => s.rules ?? []));
  const also = unique(from.flatMap((s) => s.matched)).filter((r) => !chain.includes(r));
  const laws = Object.assign({}, ...from.map((s) => s.laws ?? {}));
  const box = make("div");
  const title = chosen ? "led to the result, in this order" : "led to results";
  if (chain.length) box.append(make("h3", {}, title), group("ol", chain, laws, known));
  if (also.length) box.append(make("h3", {}, "matched as well"), group("ul", also, laws, known));
  if (!chain.length && !also.length) box.append(make("p", { class: "empty" }, "No rule led anywhere here."));
  $("rules").replaceChildren(box);
}

const unique = (names) => [...new Set(names)];

function group(tag, names, laws, known) {
  const list = make(tag);
  for (const name of names) {
    const rule = known.get(name);
    const law = laws[name] || rule?.law || "";
    const details = make("details", { "data-rule": name },
      make("summary", {}, name, make("span", { class: "law" }, law)));
    if (rule) {
      details.append(make("p", { class: "note" }, `${rule.file}:${rule.line}, ruleset ${rule.ruleset}`), make("pre", { class: "code" }, ...pieces("egg", rule.text).flatMap((line) => [...painted(line), "\n"])));
    } else details.append(make("p", { class: "note" }, "a rule of your own"));
    list.append(make("li", {}, details));
  }
  return list;
}

// An error as the service gives it: every field that is there.
export function notice(refused, more = []) {
  const { error } = refused;
  const where = error.where ?? {};
  const fields = make("dl");
  const place = [where.func && `${where.func} (${where.stage})`, where.location].filter(Boolean).join(", ");
  for (const [name, value] of [["why", error.why], ["hint", error.hint], ["where", place]]) {
    if (value) fields.append(make("dt", {}, name), make("dd", {}, value));
  }
  const status = refused.status ? ` (${refused.status})` : "";
  const again = refused.wait ? ` Again in ${refused.wait} s.` : "";
  const box = $("notice");
  box.replaceChildren(make("p", {}, make("span", { class: "kind" }, `${error.kind}${status}: `), error.what, again), fields);
  if (where.statement) box.append(make("pre", {}, where.statement));
  box.append(...more);
  box.hidden = false;
}

const MS = (seconds) => `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;

export function stages(answer) {
  const parts = Object.entries(answer.stages).map(([name, s]) => make("span", {}, `${name} `, make("b", {}, MS(s))));
  $("stages").replaceChildren(...parts, make("span", {}, answer.cached ? "from the store: times of when it was made" : ""));
  $("download").textContent = "Save kernel";
  $("download").title = `The file that selector.load reads (d): ${answer.artifact}`;
}
