// Panes, tabs and marks: what happens on the screen alone.

import { $ } from "./panes.js";

// Scroll a pane, and never the page.
export function within(box, node) {
  const [a, b] = [box.getBoundingClientRect(), node.getBoundingClientRect()];
  if (b.top < a.top || b.bottom > a.bottom) box.scrollTop += b.top - a.top - a.height / 3;
}

// Go to the next node of a pane: a line with a tensor instruction, or a difference.
export function nextOf(box, selector) {
  const all = [...box.querySelectorAll(selector)];
  if (!all.length) return;
  const at = all.findIndex((node) => node.classList.contains("at"));
  all[at]?.classList.remove("at");
  const next = all[(at + 1) % all.length];
  next.classList.add("at");
  within(box, next);
}

// The pane that a narrow window shows.
export function showPane(name) {
  document.querySelector("main").dataset.pane = name;
  for (const button of $("panes").children) {
    if (button.dataset.pane === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

// Show a tab's panel, or hide it.
export function select(tab, panel, on) {
  $(tab).setAttribute("aria-selected", String(on));
  $(tab).tabIndex = on ? 0 : -1;
  $(panel).hidden = !on;
}

export function openEditor(name) {
  for (const each of ["program", "own"]) select(`tab-${each}`, `edit-${each}`, each === name);
}

export const isEnlarged = () => document.querySelector("main").classList.contains("one");

// One pane in the place of all, and back.
export function enlarge(pane) {
  const main = document.querySelector("main");
  const on = !(isEnlarged() && pane.classList.contains("full"));
  for (const node of document.querySelectorAll(".pane")) {
    const is = on && node === pane;
    node.classList.toggle("full", is);
    node.querySelector(".large").setAttribute("aria-pressed", String(is));
  }
  main.classList.toggle("one", on);
}

// The arrow keys in a list of tabs.
export function arrows(event) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const tabs = [...event.currentTarget.children].filter((tab) => !tab.hidden);
  const next = tabs[(tabs.indexOf(event.target) + by + tabs.length) % tabs.length];
  next.click();
  next.focus();
}

// Mark a statement in every pane; 0: none.
export function hover(number) {
  for (const node of document.querySelectorAll(".hover")) node.classList.remove("hover");
  if (!number) return;
  for (const node of document.querySelectorAll(`[data-statement~="${number}"]`)) node.classList.add("hover");
}

const WRAP = "tensor-selector.wrap";

// Long lines broken, or reached by scrolling; a narrow window breaks them unless told.
export function wrapLines(on) {
  document.body.classList.toggle("wrapped", on);
  $("wrap").setAttribute("aria-pressed", String(on));
}

export function listenToWrapping() {
  let chosen = null;
  try {
    chosen = localStorage.getItem(WRAP);
  } catch {
    // forbidden: as the window says
  }
  wrapLines(chosen ? chosen === "on" : matchMedia("(max-width: 760px)").matches);
  $("wrap").addEventListener("click", () => {
    const on = !document.body.classList.contains("wrapped");
    wrapLines(on);
    try {
      localStorage.setItem(WRAP, on ? "on" : "off");
    } catch {
      // it holds until the page is left
    }
  });
}
