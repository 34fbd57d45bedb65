// The editor: a text area over a sheet that marks lines, and a gutter of line numbers.

import { $, make } from "./panes.js";

const area = $("ir");
const back = document.querySelector("#edit-ir .back");
const gutter = document.querySelector("#edit-ir .gutter");
const HEIGHT = 18; // pixels of a line, as in style.css

function follow() {
  back.scrollTop = area.scrollTop;
  back.scrollLeft = area.scrollLeft;
  gutter.scrollTop = area.scrollTop;
}

// Draw the marks: `numbers` are the statements of lines, `missed` those that were refused, `error`
// a line (from 0) with a mistake, or -1.
export function draw(numbers, missed, error) {
  const count = area.value.split("\n").length;
  const marks = [];
  const heads = [];
  for (let i = 0; i < count; i++) {
    const statement = numbers[i] || null;
    const wrong = i === error ? "error" : "";
    const state = statement && numbers[i - 1] !== statement ? (missed.has(statement) ? "missed" : "took") : "";
    marks.push(make("div", { class: wrong, "data-statement": statement }));
    heads.push(make("div", { class: wrong || state }, String(i + 1)));
  }
  // As wide and high as the text, so that both scroll to the same ends.
  const longest = Math.max(...area.value.split("\n").map((line) => line.length));
  back.replaceChildren(...marks, make("div", {}, " ".repeat(longest + 8)), make("div"));
  gutter.replaceChildren(...heads, make("div", {}, " "), make("div", {}, " "));
  follow();
}

export const lineAtCursor = () => area.value.slice(0, area.selectionStart).split("\n").length - 1;

export function lineAtPointer(event) {
  const top = area.getBoundingClientRect().top + parseFloat(getComputedStyle(area).paddingTop);
  return Math.floor((event.clientY - top + area.scrollTop) / HEIGHT);
}

export function showLine(line) {
  const at = line * HEIGHT;
  if (at < area.scrollTop || at > area.scrollTop + area.clientHeight - 2 * HEIGHT) {
    area.scrollTop = Math.max(0, at - area.clientHeight / 3);
  }
  follow();
}

area.addEventListener("scroll", follow);
