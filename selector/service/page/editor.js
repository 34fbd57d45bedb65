// Editors: a text area whose text cannot be seen, over the same text coloured, numbered and marked.
// Both are as large as the text; what scrolls is the box around them.

import { painted } from "./code.js";
import { pieces } from "./highlight.js";
import { within } from "./layout.js";
import { $, make } from "./panes.js";

const NO_MARKS = { numbers: [], missed: new Set(), error: -1 };

function makeEditor(id) {
  const area = $(id);
  const box = area.closest(".editor");
  const back = box.querySelector(".back");
  let keys = [];

  // Draw the text; `numbers` are the statements of its lines, `missed` those that were refused,
  // `error` a line (from 0) with a mistake, or -1. Only lines that look different are made again.
  function draw(language, { numbers, missed, error } = NO_MARKS) {
    const wanted = pieces(language, area.value).map((parts, i) => {
      const number = parseInt(numbers[i], 10) || 0;
      const first = number && numbers[i - 1] !== numbers[i];
      const mark = i === error ? " error" : first ? (missed.has(number) ? " missed" : " took") : "";
      return { parts, attributes: { class: `row${mark}`, "data-statement": numbers[i] || null } };
    });
    const now = wanted.map((w) => JSON.stringify(w));
    const least = Math.min(keys.length, now.length);
    let head = 0;
    while (head < least && keys[head] === now[head]) head += 1;
    let tail = 0;
    while (tail < least - head && keys.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
    const fresh = wanted.slice(head, wanted.length - tail).map((w) => make("div", w.attributes, ...painted(w.parts)));
    const old = [...back.children].slice(head, keys.length - tail);
    const next = back.children[keys.length - tail] ?? null;
    for (const node of old) node.remove();
    for (const node of fresh) back.insertBefore(node, next);
    keys = now;
  }

  return {
    area,
    draw,
    lineAtCursor: () => area.value.slice(0, area.selectionStart).split("\n").length - 1,
    lineAtPointer(event) {
      const row = document.elementsFromPoint(event.clientX, event.clientY).find((n) => n.parentNode === back);
      return row ? [...back.children].indexOf(row) : -1;
    },
    show(line) {
      if (back.children[line]) within(box, back.children[line]);
    },
  };
}

export const program = makeEditor("program");
export const ownRules = makeEditor("own");
