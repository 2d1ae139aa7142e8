// The set-up that the page shows, its form in the address, and the request that it becomes.
export const DEFAULTS = {
  workload: "llama3-8b", cluster: "dgx-h100", kmax: 1024, sel: null, regime: "strong", batch: null, seq: null,
  precision: null, layout: "auto", tp: 1, pp: 1, sharding: "", recompute: "none", bandwidth: null, latency: null,
  jitter: null, price: null, fixed: null, steps: null, timings: null,
};
const NUMBERS = new Set(["kmax", "sel", "batch", "seq", "tp", "pp", "bandwidth", "latency", "jitter", "price", "fixed", "steps"]);
const CHOICES = {
  regime: ["strong", "weak"], layout: ["auto", "fixed"], recompute: ["none", "selective", "full"],
  sharding: ["", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"],
};

/** What differs from the defaults, as a query. */
export function toQuery(state) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (value === null || value === undefined || value === DEFAULTS[key]) continue;
    query.set(key, key === "timings" ? value.map((row) => `${row.k}:${row.time_s}`).join("_") : String(value));
  }
  return query;
}

/** The state that a query describes; what it cannot mean is left at its default. */
export function fromQuery(query) {
  const state = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) {
    const text = query.get(key);
    if (text === null) continue;
    if (key === "timings") {
      const rows = text.split("_").map((row) => row.split(":").map(Number)).map(([k, time_s]) => ({ k, time_s }));
      if (rows.length <= 64 && rows.every((row) => Number.isInteger(row.k) && row.k > 0 && row.time_s > 0)) state.timings = rows;
    } else if (NUMBERS.has(key)) {
      const value = Number(text);
      if (text !== "" && Number.isFinite(value) && value >= 0) state[key] = value;
    } else if (!CHOICES[key] || CHOICES[key].includes(text)) {
      state[key] = text;
    }
  }
  return state;
}

/** The body of /api/predict. */
export function toRequest(state) {
  const body = { workload: state.workload, cluster: state.cluster, k: `1..${state.kmax}`, regime: state.regime };
  if (state.batch !== null) body[state.regime === "weak" ? "batch_per_accelerator" : "global_batch"] = state.batch;
  if (state.seq !== null) body.seq_len = state.seq;
  for (const key of ["precision", "bandwidth", "latency", "jitter", "price", "fixed", "steps"]) {
    if (state[key] !== null && state[key] !== "") body[key] = state[key];
  }
  if (state.layout === "fixed") {
    body.layout = { tp: state.tp, pp: state.pp, recompute: state.recompute };
    if (state.sharding) body.layout.sharding = state.sharding;
  }
  if (state.timings) body.timings = state.timings;
  return body;
}

// Sliders move over fixed values, so that equal positions are equal questions and the server's cache helps everyone.
const nice = (value) => Number(value.toPrecision(3));
export const SCALES = {
  batch: { at: (i) => 2 ** i, of: (v) => Math.log2(v), max: 17 },
  bandwidth: { at: (i) => nice(1e9 * 2 ** (i / 8)), of: (v) => 8 * Math.log2(v / 1e9), max: 80 },
  latency: { at: (i) => nice(1e-7 * 2 ** (i / 8)), of: (v) => 8 * Math.log2(v / 1e-7), max: 104 },
  price: { at: (i) => nice(0.1 * 2 ** (i / 8)), of: (v) => 8 * Math.log2(v / 0.1), max: 80 },
  jitter: { at: (i) => nice(i * 0.005), of: (v) => v / 0.005, max: 60 },
  fixed: { at: (i) => i * 10, of: (v) => v / 10, max: 100 },
};

/** The slider position nearest to a value. */
export function position(key, value) {
  const scale = SCALES[key];
  const at = scale.of(value);
  return Math.max(0, Math.min(scale.max, Number.isFinite(at) ? Math.round(at) : 0));
}

const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

/** Three digits, no exponent. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e15) return value.toExponential(2);
  const rounded = Number(value.toPrecision(12));
  if (Number.isInteger(rounded)) return rounded.toLocaleString("en-US");
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(size)));
  return rounded.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** A value with its unit: "s", "USD", "USD/h", "B", "B/s", "%", "x" or none. The unit suits `like`, where several stand together. */
export function quantity(value, unit, like = value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  if (unit === "%") return `${number(value * 100)} %`;
  if (unit === "x") return `${number(value)}x`;
  if (unit === "s") {
    const size = Math.abs(like);
    const [factor, name] = size >= 172800 ? [86400, "d"] : size >= 7200 ? [3600, "h"] : size >= 120 ? [60, "min"]
      : size >= 1 || size === 0 ? [1, "s"] : size >= 1e-3 ? [1e-3, "ms"] : size >= 1e-6 ? [1e-6, "us"] : [1e-9, "ns"];
    return `${number(value / factor)} ${name}`;
  }
  if (unit === "J" && Math.abs(like) >= 3.6e6) {
    const [factor, prefix] = PREFIXES.find(([f]) => Math.abs(like) >= 3.6 * f && f >= 1e6);
    return `${number(value / factor / 3.6)} ${{ 1e6: "k", 1e9: "M", 1e12: "G", 1e15: "T" }[factor] ?? "P"}Wh`;
  }
  if (unit === "B" || unit === "B/s" || unit === "J" || unit === "g") {
    const [factor, prefix] = PREFIXES.find(([f]) => Math.abs(like) >= f) ?? [1, ""];
    return `${number(value / factor)} ${prefix}${unit}`;
  }
  if (unit === "USD" && Math.abs(value) < 100 && Math.abs(value) >= 1) return `${value.toFixed(2)} USD`;
  return `${number(value)} ${unit}`.trim();
}
