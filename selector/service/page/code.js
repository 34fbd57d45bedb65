// Lines of code on the screen: coloured, numbered, and marked by the statements they belong to.

import { pieces } from "./highlight.js";
import { isTensor } from "./linking.js";
import { $, make } from "./panes.js";

// The nodes of a line; `ranges` of characters stand out.
export function painted(parts, ranges = []) {
  const nodes = [];
  let at = 0;
  for (const [kind, text] of parts) {
    const cuts = ranges.flat().filter((c) => c > at && c < at + text.length).map((c) => c - at);
    let from = 0;
    for (const to of [...cuts, text.length]) {
      const differs = ranges.some(([a, b]) => a <= at + from && at + from < b);
      const name = [kind && `t-${kind}`, differs && "differs"].filter(Boolean).join(" ");
      const part = text.slice(from, to);
      nodes.push(name ? make("span", { class: name }, part) : part);
      from = to;
    }
    at += text.length;
  }
  return nodes;
}

export function isTensorLine(language, line, parts) {
  return isTensor[language] ? isTensor[language](line) : parts.some(([kind]) => kind === "tensor");
}

// The disassembly of all kernels, without the assembler's directives and the room that is left.
export function machineText(sass) {
  const line = /^[ \t]*(\/\*[0-9a-f]+\*\/)[ \t]+(@\S+)?[ \t]*(.*?)[ \t]*;?[ \t]*$/gm;
  return Object.values(sass).join("\n").replace(line, (_, address, guard, rest) => `${address} ${(guard ?? "").padStart(5)} ${rest}`).replace(/^\s+\..*\n|^\s*\n/gm, "");
}

// Fill a pane; `numbers` are the statements of its lines. Returns how many lines are tensor ones.
export function show(id, language, text, numbers) {
  const box = make("div", { class: "lines" });
  const plain = text.replace(/\n$/, "");
  const all = plain.split("\n");
  let count = 0;
  pieces(language, plain).forEach((parts, i) => {
    const tensor = isTensorLine(language, all[i], parts);
    if (tensor) count += 1;
    box.append(make("div", { class: tensor ? "row tensor" : "row", "data-statement": numbers[i] || null }, ...painted(parts)));
  });
  const { scrollTop, scrollLeft } = $(id);
  $(id).replaceChildren(box);
  Object.assign($(id), { scrollTop, scrollLeft });
  return count;
}
