// Statements: the chosen one, marked in every pane and its rules shown.

import { program } from "./editor.js";
import { within } from "./layout.js";
import { $, rules } from "./panes.js";
import { chosen, names, state } from "./state.js";

export function showRules() {
  const s = chosen();
  $("rules-of").textContent = s ? `of ${s.func} (${s.stage})` : "of all statements";
  rules(s, state.shown.report, state.known);
}

export function mark() {
  for (const node of document.querySelectorAll("[data-statement]")) {
    const is = names(node.dataset.statement, state.session.statement);
    node.classList.toggle("chosen", is);
    if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", String(is));
  }
}

// Scroll every pane but one to the chosen statement.
export function reveal(from) {
  const number = state.session.statement;
  for (const id of ["lowered", "selected", "cuda", "kernels", "sass", "why"]) {
    const node = id === from ? null : $(id).querySelector(`[data-statement~="${number}"]`);
    if (node?.offsetParent) within($(id), node);
  }
  const line = state.shown.numbers.findIndex((entry) => names(entry, number));
  if (from !== "program" && number && line >= 0) program.show(line);
}

// Choose a statement; false if it is no other than before.
export function choose(number, from) {
  if (!state.shown.report || !number || number === state.session.statement) return false;
  state.session.statement = number;
  showRules();
  mark();
  reveal(from);
  return true;
}

// The number of the statement that comes `by` after the chosen one; 0 if there are none.
export function neighbour(by) {
  const count = state.shown.report?.statements.length ?? 0;
  return count ? ((state.session.statement - 1 + by + count) % count) + 1 : 0;
}
