// Syntax colours: a text becomes lines of pieces [class, text], where the class may be empty.
//
// A language is a list of [class, pattern], tried in order where the last piece ended; a class may
// also be a function of the word. `spans` are pieces that go over lines, as [class, begin, end].

const words = (text) => new Set(text.split(" "));

const IR_WORDS = words("module input output require origin body allocate in if else let for from to dim func at gpu_block gpu_thread serial parallel unrolled vectorized atomic free scalar CUDA");
const IR_PLACES = words("GPUShared Heap Stack Register WMMAAccumulator WGMMAAccumulator MMAAccumulator AMXTile");
const CUDA_WORDS = words("alignas asm auto bool break case class const constexpr continue default do else enum extern false for goto if inline int namespace nullptr return short signed sizeof static static_assert struct switch template true typedef typename unsigned using void volatile while __device__ __global__ __shared__ __forceinline__ __launch_bounds__ __grid_constant__ __restrict__ __align__");
const CUDA_TYPES = words("char double float half __half __half2 __nv_bfloat16 long size_t u8 u16 u32 u64 i8 i16 i32 i64 uint32_t uint64_t int32_t int64_t uint4 uint2 float2 float4 CUtensorMap");
const KERNEL_MEETING = words("init retire arrive await sync fence commit drain prefetch registers dependents");
const PYTHON_WORDS = words("and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield None True False");
const EGG_WORDS = words("rule rewrite birewrite relation function constructor datatype sort let ruleset check set union delete subsume panic run");
const TENSOR = /^(w?g?mma|wgmma|amx|tdp\w+|_tile_dp\w+|wmma)(?=[._:]|$)/;
const MACHINE_TENSOR = /^(HMMA|IMMA|BMMA|DMMA|QMMA|OMMA|HGMMA|IGMMA|QGMMA|BGMMA)\b/;

const NUMBER = /0x[0-9a-f]+[ul]*|\d+\.?\d*(?:e[+-]?\d+)?[fhul]*/iy;
const STRING = /"(?:[^"\\]|\\.)*"?/y;

function irWord(word, next) {
  if (/^(u?int|b?float)\d+(x\d+)*$|^bool$|^handle$/.test(word) || IR_PLACES.has(word)) return "type";
  if (TENSOR.test(word) && word.includes(".")) return "tensor";
  if (IR_WORDS.has(word)) return "word";
  return next === "(" ? "call" : "";
}

// The first word of a line names its node.
function node(word) {
  if (word.trim() === "mma") return "tensor";
  return KERNEL_MEETING.has(word.trim()) ? "call" : "word";
}

function cudaWord(word, next) {
  if (TENSOR.test(word) && (next === "(" || next === "<" || next === ":")) return "tensor";
  if (CUDA_WORDS.has(word)) return "word";
  if (CUDA_TYPES.has(word)) return "type";
  return next === "(" || next === "<" ? "call" : "";
}

const LANGUAGES = {
  ir: {
    rules: [
      ["comment", /(?:#|\/\/).*/y],
      ["string", STRING],
      ["", /`[^`]*`/y],
      [irWord, /[A-Za-z_$][\w.$]*/y],
      ["number", NUMBER],
    ],
  },
  cuda: {
    spans: [["comment", "/*", "*/"]],
    rules: [
      ["comment", /\/\/.*/y],
      ["string", STRING],
      ["string", /'(?:[^'\\]|\\.)*'/y],
      ["word", /^\s*#\s*\w+/y],
      [cudaWord, /[A-Za-z_]\w*/y],
      ["number", NUMBER],
    ],
  },
  kernels: {
    rules: [
      ["comment", /^\s*\|.*/y],
      [node, /^\s*[a-z_]+/y],
      [(word, next) => (next === "(" ? "type" : ""), /[A-Za-z_$][\w.$]*/y],
      ["number", NUMBER],
    ],
  },
  sass: {
    rules: [
      ["comment", /\/\*.*?\*\//y],
      ["word", /@!?U?P\w+/y],
      ["label", /\.?L_x_\d+|^\s*\.\w+.*/y],
      ["type", /\b(?:U?R(?:\d+|Z)|!?U?P(?:\d+|T))(?:\.\w+)*\b/y],
      [(word) => (MACHINE_TENSOR.test(word) ? "tensor" : /^SR_/.test(word) ? "type" : "call"), /[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\b/y],
      ["number", /-?0x[0-9a-f]+|-?\d+(?:\.\d+)?/iy],
      ["", /\w+/y],
    ],
  },
  egg: {
    rules: [
      ["comment", /;.*/y],
      ["string", STRING],
      ["type", /:[\w-]+/y],
      ["number", /-?\d+(?:\.\d+)?(?![\w-])/y],
      [(word) => (EGG_WORDS.has(word) ? "word" : /^[A-Z]/.test(word) ? "call" : ""), /[^\s()";]+/y],
    ],
  },
  python: {
    spans: [["string", '"""', '"""'], ["string", "'''", "'''"]],
    rules: [
      ["comment", /#.*/y],
      ["string", /[rbfRBF]?"(?:[^"\\]|\\.)*"?/y],
      ["string", /[rbfRBF]?'(?:[^'\\]|\\.)*'?/y],
      ["word", /@[\w.]+/y],
      [(word, next) => (PYTHON_WORDS.has(word) ? "word" : next === "(" ? "call" : ""), /[A-Za-z_]\w*/y],
      ["number", NUMBER],
    ],
  },
};

// The lines of a text as pieces.
export function pieces(language, text) {
  const { rules, spans = [] } = LANGUAGES[language];
  let open = null; // the span that the next line begins in
  return text.split("\n").map((line) => {
    const found = [];
    // The span from `at` on, whose end is looked for from `inside` on; where it leads.
    const through = (span, at, inside) => {
      const [kind, , end] = span;
      const close = line.indexOf(end, inside);
      const until = close < 0 ? line.length : close + end.length;
      open = close < 0 ? span : null;
      if (until > at) add(found, kind, line.slice(at, until));
      return until;
    };
    let at = open ? through(open, 0, 0) : 0;
    while (at < line.length) {
      const span = spans.find(([, begin]) => line.startsWith(begin, at));
      at = span ? through(span, at, at + span[1].length) : step(rules, line, at, found);
    }
    return found;
  });
}

// One piece further; where nothing fits, one character.
function step(rules, line, at, found) {
  for (const [kind, pattern] of rules) {
    pattern.lastIndex = at;
    const match = pattern.exec(line);
    if (!match || !match[0]) continue;
    const end = at + match[0].length;
    add(found, typeof kind === "string" ? kind : kind(match[0], line[end] ?? ""), match[0]);
    return end;
  }
  add(found, "", line[at]);
  return at + 1;
}

function add(found, kind, text) {
  const last = found.at(-1);
  if (last && last[0] === kind) last[1] += text;
  else found.push([kind, text]);
}
