// The lines between panes, which can be moved; where they are is remembered.

import { $ } from "./panes.js";

const KEY = "tensor-selector.layout";
const STEP = 0.02; // of the whole, for one press of an arrow key
const LEAST = 0.08;
const START = {
  usual: { columns: [1, 1, 1.2], rows: [1.1, 0.9] },
  compare: { columns: [1, 2.6], rows: [1.1, 0.9] },
};
const main = document.querySelector("main");
let parts = structuredClone(START);

const mode = () => (main.classList.contains("comparing") ? "compare" : "usual");

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY));
    for (const [name, sizes] of Object.entries(START)) {
      for (const [axis, start] of Object.entries(sizes)) {
        const given = found?.[name]?.[axis];
        if (given?.length === start.length && given.every((n) => n > 0 && n < 100)) parts[name][axis] = given;
      }
    }
  } catch {
    // nothing remembered, or nothing that can be read
  }
}

function keep() {
  try {
    localStorage.setItem(KEY, JSON.stringify(parts));
  } catch {
    // it holds until the page is left
  }
}

// Put the sizes into the style, and what they are into words.
export function layOut() {
  const { columns, rows } = parts[mode()];
  columns.forEach((size, i) => main.style.setProperty(`--column-${i + 1}`, `${size}fr`));
  rows.forEach((size, i) => main.style.setProperty(`--row-${i + 1}`, `${size}fr`));
  for (const [bar, axis, i] of bars()) {
    const all = parts[mode()][axis];
    const before = all.slice(0, i + 1).reduce((a, b) => a + b, 0);
    const now = Math.round((100 * before) / all.reduce((a, b) => a + b, 0));
    for (const [name, value] of [["now", now], ["min", 0], ["max", 100]]) bar.setAttribute(`aria-value${name}`, value);
  }
}

const bars = () => [[$("split-1"), "columns", 0], [$("split-2"), "columns", 1], [$("split-rows"), "rows", 0]];

// Move the line after part `i` by a share of the whole: one neighbour grows, the other shrinks.
function move(axis, i, by) {
  const all = parts[mode()][axis];
  if (i + 1 >= all.length) return;
  const whole = all.reduce((a, b) => a + b, 0);
  const least = LEAST * whole;
  const both = all[i] + all[i + 1];
  all[i] = Math.min(Math.max(all[i] + by * whole, least), both - least);
  all[i + 1] = both - all[i];
  layOut();
}

function reset(axis) {
  parts[mode()][axis] = [...START[mode()][axis]];
  layOut();
  keep();
}

function drag(bar, axis, i) {
  let last = null;
  const along = (event) => (axis === "columns" ? event.clientX : event.clientY);
  bar.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    bar.setPointerCapture(event.pointerId);
    bar.classList.add("moving");
    last = along(event);
  });
  bar.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const whole = axis === "columns" ? main.clientWidth : main.clientHeight;
    move(axis, i, (along(event) - last) / whole);
    last = along(event);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    bar.addEventListener(name, () => {
      bar.classList.remove("moving");
      if (last !== null) keep();
      last = null;
    });
  }
}

export function listenToSplits() {
  read();
  for (const [bar, axis, i] of bars()) {
    drag(bar, axis, i);
    bar.addEventListener("dblclick", () => reset(axis));
    const [less, more] = axis === "columns" ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
    bar.addEventListener("keydown", (event) => {
      if (event.key === "Enter") reset(axis);
      else if (event.key === less || event.key === more) move(axis, i, event.key === less ? -STEP : STEP);
      else return;
      event.preventDefault();
      keep();
    });
  }
  layOut();
}
