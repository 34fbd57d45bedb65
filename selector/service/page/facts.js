// What the kernels take of the GPU, in one line each; the same as measures that can be compared.

import { $, make } from "./panes.js";

const GROUPS = [
  ["global accesses", ["LDG", "STG", "RED", "ATOMG", "ATOM", "LD", "ST"]],
  ["shared accesses", ["LDS", "STS", "LDSM", "STSM", "ATOMS"]],
  ["async copies", ["LDGSTS", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"]],
  ["barriers", ["BAR", "SYNCS", "WARPSYNC", "WARPGROUP"]],
];
const TENSOR = /^(H|I|B|D|Q|O)G?MMA$/;

const one = (name) => name.replace(/ies$/, "y").replace(/(ss)es$|s$/, "$1");
const count = (n, name) => `${n} ${n === 1 ? one(name) : name}`;
const sum = (instructions, names) => names.reduce((all, name) => all + (instructions[name] ?? 0), 0);
const total = (kernel) => Object.values(kernel.instructions).reduce((a, b) => a + b, 0);
const size = (bytes) => (bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`);
const share = (o) => `${Math.round(100 * o.share)} %`;
const tensor = (kernel) => Object.entries(kernel.instructions).filter(([name]) => TENSOR.test(name));
const local = (kernel) => sum(kernel.instructions, ["LDL", "STL"]);

function parts(k) {
  const o = k.occupancy;
  const found = [
    ["", `${k.registers} registers`],
    ["", `${size(k.shared_bytes)} shared`],
    ["", `${k.threads} threads`],
    [o.blocks ? "" : "wrong", o.blocks ? `${share(o)} occupancy, limited by ${o.limit}` : `no block fits (${o.limit})`],
    ["", `${total(k)} instructions`],
    ...tensor(k).map(([name, count]) => ["tensor-fact", `${count} ${name}`]),
    ...GROUPS.map(([name, opcodes]) => ["", sum(k.instructions, opcodes), name]).filter(([, n]) => n).map(([c, n, name]) => [c, count(n, name)]),
  ];
  if (local(k)) found.push(["wrong", `${local(k)} local (spills)`]);
  if (k.stack_bytes) found.push(["wrong", `${k.stack_bytes} B stack`]);
  return found;
}

// One line for each kernel; opened, it lists every opcode.
export function facts(resources) {
  $("facts").replaceChildren(...resources.map((k) => {
    const line = parts(k).map(([name, text]) => make("span", { class: name || null }, text));
    const all = Object.entries(k.instructions).map(([name, count]) => make("span", {}, make("b", {}, String(count)), ` ${name}`));
    const blocks = make("p", { class: "note" }, `${count(k.occupancy.blocks, "blocks")} of ${k.threads} threads on a multiprocessor at a time; instructions by opcode:`);
    return make("details", {}, make("summary", { title: "Every opcode" }, make("b", {}, k.entry), ...line), blocks, make("p", { class: "opcodes" }, ...all));
  }));
}

export function noFacts(text) {
  $("facts").replaceChildren(...(text ? [make("p", { class: "note" }, text)] : []));
}

// What a side of a comparison comes to, as [label, text].
export function measures({ reasons, machine }) {
  const all = reasons?.report?.statements ?? [];
  const misses = all.filter((s) => s.miss).length;
  const kernels = machine?.resources ?? [];
  const each = (text) => kernels.map(text).join(" · ");
  return [
    ["selected", reasons?.report ? `${all.length - misses} of ${all.length} statements` : ""],
    ["instructions chosen", all.filter((s) => s.instruction).map((s) => `${s.count} × ${s.instruction}`).join(", ")],
    ["registers", each((k) => k.registers)],
    ["shared memory", each((k) => size(k.shared_bytes))],
    ["threads of a block", each((k) => k.threads)],
    ["occupancy", each((k) => `${share(k.occupancy)} (${k.occupancy.limit})`)],
    ["instructions", each((k) => [total(k), ...tensor(k).map(([name, count]) => `${count} ${name}`)].join(", "))],
    ["local accesses", each(local)],
  ];
}
