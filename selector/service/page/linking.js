// Which lines belong to which statement of the report.
//
// The report names a statement by its text, as the compiler prints it, and says how many equal ones
// (up to bases) share its entry. Lines are found by that text; copies, and statements that the user
// wrote differently, by what they write and whether they add to it.

const STORE = /^\s*([A-Za-z_$][\w$.]*|`[^`]*`)\[/;

// The stores of a program: {buffer, uses, text, first, last}, lines from 0.
export function stores(text) {
  const found = [];
  let open = null;
  let depth = 0;
  text.split("\n").forEach((line, number) => {
    const code = line.replace(/(#|\/\/).*$/, "");
    const begins = depth === 0 && STORE.test(code);
    const block = depth === 0 && /^\s*(\}|allocate\b|body\b|if\b|for\b|let\b|[\w<>]+ \(.*\{\s*$)/.test(code);
    if (begins || block) open = null;
    if (begins) {
      open = { buffer: code.match(STORE)[1], text: "", first: number, last: number };
      found.push(open);
    }
    if (open && code.trim()) {
      open.text += code;
      open.last = number;
    }
    for (const c of code) depth += "([".includes(c) ? 1 : ")]".includes(c) ? -1 : 0;
    depth = Math.max(depth, 0);
  });
  for (const store of found) {
    const right = store.text.slice(store.text.indexOf("]") + 1);
    store.uses = new Set(right.slice(right.indexOf("=")).match(/(?<![\w$.])[A-Za-z_$][\w$.]*(?=\[)/g));
    store.key = normal(store.text);
  }
  return found;
}

// Without blanks, and numbers in one form.
function normal(text) {
  return text.replace(/\s+/g, "").replace(/\d+\.\d*f?/g, (n) => String(parseFloat(n)));
}

const skeleton = (key) => key.replace(/\d+/g, "#").replace(/[()]|\+#|\*#|#\+/g, "");

// For each line of the program the number (from 1) of its statement in the report, 0 for none.
export function programLines(text, statements) {
  const all = stores(text);
  const owner = new Map();
  const entries = statements.map((s, i) => ({ ...s, number: i + 1, key: normal(s.statement) }));
  for (const entry of entries) {
    const exact = all.find((s) => !owner.has(s) && s.key === entry.key);
    if (exact) owner.set(exact, entry.number);
  }
  const tiles = entries.filter((e) => e.stage === "init" || e.stage === "update").map((e) => e.func);
  const kind = (store) => {
    if (tiles.includes(store.buffer)) return store.uses.has(store.buffer) ? "update" : "init";
    return tiles.some((tile) => store.uses.has(tile)) ? "read" : "";
  };
  const stage = (e) => (e.stage === "rescale" ? "update" : e.stage); // both read what they write
  const alike = (store) => entries.filter((e) => e.func === store.buffer && [kind(store), "plain"].includes(stage(e)));
  const rest = (find) => {
    for (const store of all) {
      const entry = owner.has(store) ? null : find(store, alike(store));
      if (entry) owner.set(store, entry.number);
    }
  };
  rest((store, some) => some.find((e) => skeleton(e.key) === skeleton(store.key)));
  // The compiler may have rewritten a statement, or split it: then it is of an entry without lines.
  const lost = entries.filter((e) => ![...owner.values()].includes(e.number));
  rest((store, some) => (some.length === 1 ? some[0] : some.find((e) => lost.includes(e))));
  return lineNumbers(all, owner);
}

// Of Python: each statement of the report says the line on which its Func was marked. A line may have
// several, which are given as numbers with blanks, those with an instruction first.
export function placedLines(statements) {
  const lines = [];
  statements.forEach((s, i) => {
    const found = /^program:(\d+)/.exec(s.location ?? "");
    if (found) (lines[found[1] - 1] ??= []).push(i + 1);
  });
  const product = (n) => Boolean(statements[n - 1].instruction);
  return Array.from(lines, (some) => (some ?? []).sort((a, b) => product(b) - product(a)).join(" "));
}

// The same for the selected program: its stores are those of the program, in the same order.
export function selectedLines(text, program, numbers) {
  const before = stores(program);
  const after = stores(text);
  const owner = new Map();
  for (const buffer of new Set(after.map((s) => s.buffer))) {
    const from = before.filter((s) => s.buffer === buffer);
    const to = after.filter((s) => s.buffer === buffer);
    if (from.length === to.length) to.forEach((s, i) => owner.set(s, numbers[from[i].first] ?? 0));
  }
  return lineNumbers(after, owner);
}

function lineNumbers(all, owner) {
  const lines = [];
  for (const store of all) {
    for (let line = store.first; line <= store.last; line++) lines[line] = owner.get(store) ?? 0;
  }
  return lines;
}

const CUDA_TENSOR = /^(?!.*__forceinline__)(?!\s*asm\b)(?!\s*\/\/).*(\bw?g?mma(_\w+|::mma_sync)?\s*[(<]|_tile_dp\w+|wgmma)/;
const KERNEL_TENSOR = /^\s*mma\b/;
const SASS_TENSOR = /\b(HMMA|IMMA|BMMA|DMMA|QMMA|OMMA|HGMMA|IGMMA|QGMMA|BGMMA)\b/;
export const isTensor = {
  cuda: (line) => CUDA_TENSOR.test(line), kernels: (line) => KERNEL_TENSOR.test(line), sass: (line) => SASS_TENSOR.test(line),
};

// Lines of the source, or of the kernels' IR: the emitter heads each group of instructions with the accumulators that it
// is for (`// conv: 20 instructions`); the group ends with the last tensor line of its block.
export function sourceLines(language, text, statements) {
  const updates = statements.map((s, i) => [s, i + 1]).filter(([s]) => s.instruction);
  const all = text.split("\n");
  const lines = [];
  let inside = null;
  all.forEach((line, number) => {
    const indent = line.search(/\S/);
    const head = line.match(/^[\s|]*\/\/ (.+): \d+ instructions$/);
    if (head) {
      const funcs = head[1].split(", ");
      const own = updates.filter(([s]) => funcs.includes(s.func)).map(([, n]) => n);
      inside = { indent, from: number, own: own.length === 1 ? own[0] : 0 };
    } else if (inside && indent >= 0 && indent < inside.indent) inside = null;
    if (!isTensor[language](line)) return;
    const statement = inside ? inside.own : updates.length === 1 ? updates[0][1] : 0;
    if (statement) lines.fill(statement, ...grown(lines, inside?.from ?? number, number));
  });
  return lines;
}

// The range to fill, after the array is made long enough for it.
function grown(lines, from, to) {
  while (lines.length <= to) lines.push(0);
  return [from, to + 1];
}

// Machine code names no statement: its tensor instructions are those of the only one, if there is one.
export function machineLines(text, statements) {
  const updates = statements.map((s, i) => [s, i + 1]).filter(([s]) => s.instruction);
  const only = updates.length === 1 ? updates[0][1] : 0;
  return text.split("\n").map((line) => (isTensor.sass(line) ? only : 0));
}
