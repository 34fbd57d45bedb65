// Shortcuts. Single keys work outside of text fields, and can be switched off.

import { enlarge, isEnlarged, showPane } from "./layout.js";
import { $ } from "./panes.js";

const KEY = "tensor-selector.keys";
const PANES = ["program", "selected", "code", "why", "rules", "compare"];

const isText = (node) => node.matches("textarea, select, input:not([type=checkbox])");

// The part of a pane that takes the keys.
function enter(name) {
  showPane(name);
  if (isEnlarged() && !$(`pane-${name}`).classList.contains("full")) enlarge($(`pane-${name}`));
  const inside = [...$(`pane-${name}`).querySelectorAll("textarea, .body")].find((node) => node.offsetParent);
  inside?.focus();
}

function escape(event) {
  if (document.querySelector("dialog[open]")) return; // closes by itself
  if (event.target.matches("textarea")) {
    event.target.closest(".pane").querySelector("[role=tab][aria-selected=true]").focus();
  } else if (isEnlarged()) enlarge(document.querySelector(".pane.full"));
}

export function listenToKeys(does) {
  const single = $("single");
  single.checked = localStorage.getItem(KEY) !== "off";
  single.addEventListener("change", () => localStorage.setItem(KEY, single.checked ? "on" : "off"));
  const click = (id) => () => !$(id).hidden && $(id).click();
  const keys = {
    j: () => does.step(1),
    k: () => does.step(-1),
    c: () => does.openTab("cuda"),
    i: () => does.openTab("kernels"),
    s: () => does.openTab("sass"),
    g: () => does.openTab("graph"),
    n: does.next,
    x: click("compare"),
    h: does.hold,
    e: click("examples"),
    l: click("share"),
    d: click("download"),
    t: click("theme"),
    w: click("wrap"),
    m: () => enlarge(document.activeElement.closest(".pane") ?? $("pane-program")),
    "?": click("keys"),
  };
  PANES.forEach((pane, i) => (keys[i + 1] = () => !$(`pane-${pane}`).hidden && enter(pane)));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      does.compile();
    } else if (event.key === "Escape") escape(event);
    else if (single.checked && !isText(event.target) && !document.querySelector("dialog[open]") && !(event.ctrlKey || event.metaKey || event.altKey)) {
      const action = keys[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    }
  });
}
