// Differences of two texts: which lines are the same, which have changed and where, and which are on
// one side alone.

const TABLE = 4_000_000; // cells of a table of common parts, at most

// Pairs [i, j] of equal entries, both ascending: as many as a table finds, where the two are small;
// else those around lines that each side has once.
export function pairs(a, b) {
  const found = [];
  const whole = (from, to, other, end) => {
    let tail = 0;
    while (from < to && other < end && a[from] === b[other]) found.push([from++, other++]);
    while (to - tail > from && end - tail > other && a[to - tail - 1] === b[end - tail - 1]) tail += 1;
    const [last, otherLast] = [to - tail, end - tail];
    if (from < last && other < otherLast) {
      if ((last - from) * (otherLast - other) <= TABLE) common(a, b, from, last, other, otherLast, found);
      else {
        let [left, right] = [from, other];
        const middle = anchors(a, b, from, last, other, otherLast);
        for (const [i, j] of middle) {
          whole(left, i, right, j);
          found.push([i, j]);
          [left, right] = [i + 1, j + 1];
        }
        if (middle.length) whole(left, last, right, otherLast);
      }
    }
    for (let k = 0; k < tail; k++) found.push([last + k, otherLast + k]);
  };
  whole(0, a.length, 0, b.length);
  return found;
}

// The longest common subsequence, by its table.
function common(a, b, from, to, other, end, found) {
  const width = end - other + 1;
  const table = new Uint32Array((to - from + 1) * width);
  for (let i = to - 1; i >= from; i--) {
    for (let j = end - 1; j >= other; j--) {
      const at = (i - from) * width + j - other;
      table[at] = a[i] === b[j] ? table[at + width + 1] + 1 : Math.max(table[at + width], table[at + 1]);
    }
  }
  let [i, j] = [from, other];
  while (i < to && j < end) {
    const at = (i - from) * width + j - other;
    if (a[i] === b[j]) found.push([i++, j++]);
    else if (table[at + width] >= table[at + 1]) i += 1;
    else j += 1;
  }
}

// Lines that each side has once, in an order that both have (the longest ascending run).
function anchors(a, b, from, to, other, end) {
  const count = (all, begin, stop) => {
    const seen = new Map();
    for (let i = begin; i < stop; i++) seen.set(all[i], seen.has(all[i]) ? -1 : i);
    return seen;
  };
  const right = count(b, other, end);
  const both = [...count(a, from, to)].flatMap(([key, i]) => (i >= 0 && (right.get(key) ?? -1) >= 0 ? [[i, right.get(key)]] : []));
  const tails = [];
  const before = both.map(() => -1);
  both.forEach(([, j], n) => {
    let [low, high] = [0, tails.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (both[tails[middle]][1] < j) low = middle + 1;
      else high = middle;
    }
    before[n] = low ? tails[low - 1] : -1;
    tails[low] = n;
  });
  const run = [];
  for (let n = tails.at(-1) ?? -1; n >= 0; n = before[n]) run.unshift(both[n]);
  return run;
}

// Rows of a comparison: {left, right} are line numbers from 0, or -1 where a side has none.
export function rows(a, b) {
  const found = [];
  let [i, j] = [0, 0];
  const between = (to, end) => {
    while (i < to && j < end) found.push({ left: i++, right: j++, same: false });
    while (i < to) found.push({ left: i++, right: -1, same: false });
    while (j < end) found.push({ left: -1, right: j++, same: false });
  };
  for (const [left, right] of pairs(a, b)) {
    between(left, right);
    found.push({ left: i++, right: j++, same: true });
  }
  between(a.length, b.length);
  return found;
}

// Where two lines differ: ranges [from, to] of characters, of each. None, where they have little in
// common: then the lines as a whole differ.
export function ranges(left, right) {
  const parts = (line) => line.match(/\w+|\s+|[^\w\s]/g) ?? [];
  const [a, b] = [parts(left), parts(right)];
  const same = pairs(a, b);
  const shared = same.reduce((sum, [i]) => sum + a[i].trim().length, 0);
  if (2 * shared < Math.min(left.trim().length, right.trim().length)) return [[], []];
  return [unmatched(a, new Set(same.map(([i]) => i))), unmatched(b, new Set(same.map(([, j]) => j)))];
}

function unmatched(parts, kept) {
  const found = [];
  let at = 0;
  parts.forEach((part, i) => {
    if (!kept.has(i)) {
      if (found.at(-1)?.[1] === at) found.at(-1)[1] += part.length;
      else found.push([at, at + part.length]);
    }
    at += part.length;
  });
  return found;
}
