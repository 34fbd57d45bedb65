// Shortcuts. Single keys work outside of text fields, and can be switched off.

import { $ } from "./panes.js";

const KEY = "tensor-selector.keys";
const PANES = ["pane-program", "pane-selected", "pane-code", "pane-why", "pane-rules"];

const isText = (node) => node.matches("textarea, select, input:not([type=checkbox])");

// The part of a pane that takes the keys.
function enter(pane) {
  const inside = [...$(pane).querySelectorAll("textarea, .body")].find((node) => node.offsetParent);
  inside?.focus();
}

export function listenToKeys(does) {
  const single = $("single");
  single.checked = localStorage.getItem(KEY) !== "off";
  single.addEventListener("change", () => localStorage.setItem(KEY, single.checked ? "on" : "off"));
  const keys = {
    j: () => does.step(1),
    k: () => does.step(-1),
    c: () => does.openTab("cuda"),
    s: () => does.openTab("sass"),
    g: () => does.openTab("graph"),
    n: does.nextTensor,
    l: does.copyLink,
    d: () => !$("download").hidden && void does.download(),
    t: () => $("theme").click(),
    m: () => does.enlarge(document.activeElement.closest(".pane") ?? $("pane-program")),
    "?": () => $("help").showModal(),
  };
  PANES.forEach((pane, i) => (keys[i + 1] = () => enter(pane)));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      does.compile();
    } else if (event.key === "Escape" && event.target.matches("textarea")) {
      event.target.closest(".pane").querySelector("[role=tab][aria-selected=true]").focus();
    } else if (single.checked && !isText(event.target) && !$("help").open && !(event.ctrlKey || event.metaKey || event.altKey)) {
      const action = keys[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    }
  });
}
