// The page: controls to state, state to question, answer to charts and tables.
import { legend, lines, shares } from "/charts.js";
import { DEFAULTS, SCALES, fromQuery, number, position, quantity, toQuery, toRequest } from "/state.js";

const $ = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
let catalogue = { workloads: [], clusters: [] };
let state = fromQuery(query);
let baseline = query.has("base") ? fromQuery(new URLSearchParams(query.get("base"))) : null;
let now = null; // the answer on screen
let before = null; // the baseline's answer
let shown = null; // the state that `now` answers
let busy = false;
let again = false;

// Asking

async function post(path, body) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (response.ok) return response;
  let problem = { message: `the server answered ${response.status}`, problems: [] };
  try { problem = (await response.json()).error; } catch { /* keep the plain message */ }
  throw Object.assign(new Error(problem.message), { problems: problem.problems ?? [] });
}

/** One question at a time; while it is out, only the latest wish is kept. A busy server is asked less often. */
async function refresh() {
  remember();
  waiting(true); // at once: no old answer beside new controls
  if (busy) { again = true; return; }
  busy = true;
  do {
    again = false;
    const asked = { ...state };
    const started = performance.now();
    try {
      const answer = await (await post("/api/predict", toRequest(asked))).json();
      now = answer;
      shown = asked;
      if (baseline === null) { baseline = asked; before = answer; remember(); }
      if (before === null) before = await answerOf(baseline);
      fail(null);
      render();
      $("status").textContent = `answered in ${Math.round(performance.now() - started)} ms`;
    } catch (error) {
      fail(error);
    }
    const took = performance.now() - started;
    if (again && took > 60) await new Promise((go) => setTimeout(go, Math.min(1500, 3 * took)));
  } while (again);
  busy = false;
  waiting(false);
}

/** Marks the results as those of an earlier question while a new one is out, and after it failed. */
function waiting(out) {
  $("results").setAttribute("aria-busy", String(out));
  const asks = (wanted) => JSON.stringify(toRequest(wanted)); // which K one looks at is no question
  $("results").classList.toggle("old", out || shown === null || asks(shown) !== asks(state));
}

async function answerOf(wanted) {
  try { return await (await post("/api/predict", toRequest(wanted))).json(); } catch { return null; }
}

function remember() {
  const kept = toQuery(state);
  if (baseline !== null) {
    const base = toQuery(baseline).toString();
    if (base !== toQuery(state).toString()) kept.set("base", base);
  }
  const text = kept.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

function fail(error) {
  const place = $("error");
  place.hidden = error === null;
  if (error === null) { place.replaceChildren(); return; }
  const list = document.createElement("ul");
  for (const problem of error.problems ?? []) {
    const item = document.createElement("li");
    item.textContent = [problem.field ? `${problem.field}: ` : "", problem.message, problem.help ? ` (${problem.help})` : ""].join("");
    list.append(item);
  }
  place.replaceChildren(error.message, list);
}

// Showing

const at = (result, key, k) => result?.[key]?.[result.k.indexOf(k)] ?? null;
const knee = (result) => result?.knee?.threshold ?? {};

function render() {
  const result = now.result;
  const feasible = result.k.filter((k) => at(result, "time_s", k) !== null);
  if (state.sel === null || !result.k.includes(state.sel)) {
    const wish = [state.sel, knee(result).k, result.p_star?.k].find((k) => result.k.includes(k));
    state.sel = wish ?? feasible.at(-1) ?? result.k.at(-1);
  }
  $("answer").textContent = now.summary?.answer ?? "";
  $("subject").textContent = now.summary?.title ?? "";
  $("cost-basis").textContent = result.cost_basis ? String(result.cost_basis).replaceAll("_", " ") : "";
  facts(now.summary?.facts ?? []);
  controls();
  charts();
  comparison();
  curveTable();
  $("why-text").hidden = true; // it spoke of an earlier difference
  $("notes").replaceChildren(...(now.summary?.notes ?? []).map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

function facts(entries) {
  $("facts").replaceChildren(...entries.map(([label, value, more]) => {
    const box = document.createElement("div");
    const [dt, dd, small] = ["dt", "dd", "small"].map((name) => document.createElement(name));
    dt.textContent = label;
    small.textContent = more;
    dd.append(value, small);
    box.append(dt, dd);
    return box;
  }));
}

function charts() {
  const result = now.result;
  const old = before?.result;
  const ghost = old && toQuery(baseline).toString() !== toQuery(shown).toString();
  const marks = [["knee", knee(result).k], ["p*", result.p_star?.k], ["fastest", result.fastest?.k]]
    .filter(([, k]) => k !== null && k !== undefined).map(([label, x]) => ({ label, x }));
  const bounds = (result.boundaries ?? []).map((b) => ({ label: b.name ?? b.label, x: b.k }));
  const common = { marks, bounds, select: state.sel, onSelect: select };
  const line = (name, look, from, key) => ({ name, look, x: from.k, y: from[key] ?? [] });
  const both = (key, unit) => (k) => [
    `now ${quantity(at(result, key, k), unit)}`,
    ...(ghost ? [`baseline ${quantity(at(old, key, k), unit)}`] : []),
  ];
  const isWeak = state.regime === "weak"; // drawn as T(K0)/T(K), whose ideal is a flat 1
  const key = isWeak ? "efficiency" : "speedup";
  const series = [
    { ...line("now, 90 % band", "s0", result, key), low: result[`${key}_low`], high: result[`${key}_high`] },
    { name: isWeak ? "ideal: flat" : "ideal", look: "ideal dashed", x: result.k, y: isWeak ? result.k.map(() => 1) : result.k },
  ];
  if (ghost) series.push(line("baseline", "s5 ghost", old, key));
  const base = result.baseline_k ?? 1;
  const start = at(result, "time_s", base);
  if (state.timings && start) {
    const scale = isWeak ? () => start : () => base * start;
    series.push({ name: "measured", look: "s2 dots", x: state.timings.map((t) => t.k), y: state.timings.map((t) => scale() / t.time_s) });
  }
  legend($("legend-speedup"), series.map(({ name, look }) => ({ name, look })));
  lines($("chart-speedup"), { ...common, title: isWeak ? "Weak scaling" : "Speedup against K", alt: now.summary?.answer ?? "", yTitle: isWeak ? "T(K0) / T(K)" : "speedup", series, yLog: !isWeak, show: both(key, isWeak ? "%" : "x") });
  lines($("chart-efficiency"), {
    ...common, title: "Efficiency against K", alt: "The zone under the threshold is shaded.", yTitle: "efficiency [%]", percent: true, bounds: [],
    series: [line("now", "s0", result, "efficiency"), ...(ghost ? [line("baseline", "s5 ghost", old, "efficiency")] : [])],
    floor: knee(result).value ?? 0.7, show: both("efficiency", "%"),
  });
  const parts = largest(result.parts_s ?? {}, 7);
  legend($("legend-parts"), parts.map((part, i) => ({ name: part.name, look: `s${i % 8} block` })));
  shares($("chart-parts"), {
    title: "Step time by part", alt: "Share of each part at each K.", k: result.k, parts, select: state.sel, onSelect: select,
    show: (k) => parts.map((part) => `${part.name} ${quantity(part.values[result.k.indexOf(k)], "s")}`),
  });
  lines($("chart-cost"), {
    ...common, title: "Cost against K", alt: `Cheapest at K = ${result.p_star?.k ?? "none"}.`, yTitle: "USD", bounds: [],
    series: [{ ...line("now", "s0", result, "cost_usd"), low: result.cost_usd_low, high: result.cost_usd_high }, ...(ghost ? [line("baseline", "s5 ghost", old, "cost_usd")] : [])],
    show: both("cost_usd", "USD"),
  });
}

/** The parts that matter, in their order; the rest becomes "other". */
function largest(found, most) {
  const parts = Object.entries(found).filter(([, v]) => v.some((x) => x)).map(([name, values]) => ({ name: name.replaceAll("_", " "), values }));
  if (parts.length <= most + 1) return parts;
  const reach = (part) => Math.max(...part.values.map((v, i) => (v ?? 0) / (now.result.time_s[i] || 1)));
  const kept = new Set([...parts].sort((a, b) => reach(b) - reach(a)).slice(0, most));
  const rest = parts.filter((part) => !kept.has(part));
  const other = { name: "other", values: now.result.k.map((_, i) => rest.reduce((sum, part) => sum + (part.values[i] ?? 0), 0)) };
  return [...parts.filter((part) => kept.has(part)), other];
}

function row(cells, options = {}) {
  const made = document.createElement("tr");
  made.className = options.chosen ? "chosen" : "";
  cells.forEach((cell, i) => {
    const place = document.createElement(options.head || i === 0 ? "th" : "td");
    place.scope = options.head ? "col" : "row";
    if (!(options.head || i === 0)) place.removeAttribute("scope");
    if (cell !== null && typeof cell === "object") {
      place.textContent = cell.text;
      place.className = cell.look;
    } else {
      place.textContent = cell ?? "";
    }
    if (options.right?.includes(i)) place.classList.add("n");
    made.append(place);
  });
  return made;
}

function table(place, heads, rows, right) {
  const [head, body] = ["thead", "tbody"].map((name) => document.createElement(name));
  head.append(row(heads, { head: true, right }));
  body.append(...rows.map(({ cells, chosen }) => row(cells, { chosen, right })));
  place.replaceChildren(head, body);
}

/** Samples of a step at one K, and those that the cost there is for: of weak scaling it is for the baseline's work. */
const batch = (result, k) => at(result, "throughput", k) * at(result, "time_s", k);
const priced = (result, k, steps) => batch(result, result?.regime === "weak" ? result.baseline_k : k) * (steps ?? 1);

/** A row of two times or costs: as they are where both are for as many samples, else of a sample, which compares. */
function fair(label, unit, key, [left, kLeft, nLeft], [right, kRight, nRight], many = 1) {
  const values = [at(left, key, kLeft), at(right, key, kRight)];
  if (!nLeft || !nRight || Math.abs(nRight / nLeft - 1) < 1e-6) return [label, unit, ...values];
  const name = label.replace("step time", "time per sample").replace("cost", "cost of a million samples");
  return [name, unit, values[0] * many / nLeft, values[1] * many / nRight];
}

function comparison() {
  const [a, b] = [before?.result, now.result];
  const k = state.sel;
  const time = (label, kA, kB) => fair(label, "s", "time_s", [a, kA, batch(a, kA)], [b, kB, batch(b, kB)]);
  const cost = (label, kA, kB) => fair(label, "USD", "cost_usd", [a, kA, priced(a, kA, baseline.steps)], [b, kB, priced(b, kB, shown.steps)], 1e6);
  const entries = [
    ["workload", null, baseline.workload, shown.workload],
    ["cluster", null, baseline.cluster, shown.cluster],
    ["knee, K", "count+", knee(a).k, knee(b).k],
    ["cheapest, K", "count", a?.p_star?.k, b.p_star?.k],
    cost("cost there", a?.p_star?.k, b.p_star?.k),
    ["fastest, K", "count", a?.fastest?.k, b.fastest?.k],
    time("step time there", a?.fastest?.k, b.fastest?.k),
    [`at K = ${number(k)}`, null, "", ""],
    time("step time", k, k),
    ["efficiency", "%", at(a, "efficiency", k), at(b, "efficiency", k)],
    cost("cost", k, k),
    ["memory", "B", at(a, "memory_bytes", k), at(b, "memory_bytes", k)],
    ["layout", null, layoutText(at(a, "layout", k)), layoutText(at(b, "layout", k))],
  ];
  table($("compare"), ["", "baseline", "now", "change"], entries.map(([label, unit, left, right]) => ({
    chosen: left === "" && right === "",
    cells: [label, show(left, unit), show(right, unit), change(left, right, unit)],
  })), [1, 2, 3]);
}

function show(value, unit) {
  if (unit === null) return value ?? "";
  if (value === null || value === undefined) return "-";
  return unit.startsWith("count") ? number(value) : quantity(value, unit);
}

function change(left, right, unit) {
  if (unit === null) return left === right ? "" : "changed";
  if (typeof left !== "number" || typeof right !== "number" || !left || left === right) return "";
  const share = right / left - 1;
  const text = `${share > 0 ? "+" : ""}${number(share * 100)} %`;
  if (unit === "count" || unit === "B") return text;
  const good = unit === "%" || unit === "count+" ? share > 0 : share < 0;
  return { text, look: good ? "better" : "worse" };
}

function layoutText(layout) {
  if (!layout || typeof layout !== "object") return layout ?? "";
  const degrees = ["dp", "tp", "pp", "cp", "ep"].filter((d) => layout[d] > 1).map((d) => `${d}${layout[d]}`);
  return [...degrees, layout.sharding, layout.shard_group ? `group ${layout.shard_group}` : "", layout.recompute && layout.recompute !== "none" ? `recompute ${layout.recompute}` : ""].filter(Boolean).join(" ");
}

/** Both ends of a band in the unit of what it lies around. */
function span(low, high, unit, around) {
  return Number.isFinite(low) && Number.isFinite(high) ? [low, high].map((end) => quantity(end, unit, around)).join(" to ") : "-";
}

function curveTable() {
  const r = now.result;
  table($("curve"), ["K", "step time", "90 % band", "speedup", "efficiency", "MFU", "run", "90 % band", "cost", "90 % band", "energy", "memory", "layout"], r.k.map((k, i) => ({
    chosen: k === state.sel,
    cells: [
      number(k), quantity(r.time_s[i], "s"),
      span(r.time_s_low?.[i], r.time_s_high?.[i], "s", r.time_s[i]),
      quantity(r.speedup[i], "x"), quantity(r.efficiency[i], "%"), quantity(r.mfu?.[i], "%"),
      quantity(r.run?.time_s?.[i], "s"), span(r.run?.time_s_low?.[i], r.run?.time_s_high?.[i], "s", r.run?.time_s?.[i]),
      quantity(r.cost_usd?.[i], "USD"), span(r.cost_usd_low?.[i], r.cost_usd_high?.[i], "USD"),
      quantity(r.energy_j?.[i], "J"), quantity(r.memory_bytes?.[i], "B"), r.reason?.[i] ?? layoutText(r.layout?.[i]),
    ],
  })), [...Array(12).keys()]);
}

// Controls

function select(k) {
  state.sel = k;
  remember();
  render();
}

const UNITS = { batch: "", bandwidth: "B/s", latency: "s", jitter: "%", price: "USD/h", fixed: "USD/h" };

/** What a slider stands for when the state leaves it open: the catalogue's value. */
function own(key) {
  const inputs = now?.inputs ?? {};
  const cluster = catalogue.clusters.find((c) => c.name === state.cluster) ?? {};
  if (key === "batch") {
    const name = state.regime === "weak" ? "batch_per_accelerator" : "global_batch";
    return now?.result?.[name] ?? inputs[name] ?? inputs.job?.[name] ?? null;
  }
  if (key === "bandwidth" || key === "latency") return cluster[key] ?? null;
  if (key === "price") return cluster.price_usd_per_h ?? null;
  return key === "fixed" ? 0 : null;
}

function controls() {
  for (const key of ["workload", "cluster", "regime", "layout", "tp", "pp", "sharding", "recompute", "kmax"]) $(key).value = String(state[key]);
  $("precision").value = state.precision ?? "";
  for (const [key, id] of [["seq", "seq"], ["steps", "steps"]]) {
    if (document.activeElement !== $(id)) $(id).value = state[key] ?? "";
  }
  $("layout-fields").hidden = state.layout !== "fixed";
  for (const key of Object.keys(SCALES)) {
    const chosen = state[key] !== null;
    const value = chosen ? state[key] : own(key);
    const slider = $(key);
    if (document.activeElement !== slider || !chosen) slider.value = value === null ? Math.round(SCALES[key].max / 4) : position(key, value);
    const text = value === null ? "as known" : quantity(value, UNITS[key]);
    const output = $(`${key}-value`);
    output.textContent = chosen ? text : value === null ? text : `${text} (default)`;
    output.className = chosen ? "" : "own";
    slider.setAttribute("aria-valuetext", output.textContent);
    const reset = document.querySelector(`[data-reset="${key}"]`);
    if (reset) reset.disabled = !chosen;
  }
  const ks = now?.result?.k ?? [];
  $("sel").max = Math.max(0, ks.length - 1);
  $("sel").value = Math.max(0, ks.indexOf(state.sel));
  $("sel-value").textContent = `K = ${number(state.sel)}`;
  $("sel").setAttribute("aria-valuetext", `K = ${number(state.sel)}`);
  $("timings-state").hidden = !state.timings;
  if (state.timings) $("timings-state").firstElementChild.textContent = `calibrated with ${state.timings.length} measured steps`;
}

// What was chosen for another cluster, workload or regime means nothing for the new one.
const FORGOTTEN = { cluster: ["bandwidth", "latency", "price", "timings"], workload: ["batch", "seq", "timings"], regime: ["batch"] };
const NAMED = { bandwidth: "bandwidth", latency: "latency", price: "price", timings: "measured steps", batch: "batch", seq: "sequence length" };

/** Takes back one's own values, and says which. */
function forget(keys, changed) {
  const own = keys.filter((key) => state[key] !== null);
  for (const key of own) state[key] = null;
  $("forgotten").hidden = own.length === 0;
  $("forgotten").textContent = `The ${changed} is another one, so these are its own again: ${own.map((key) => NAMED[key]).join(", ")}.`;
}

function listen() {
  for (const key of ["workload", "cluster", "regime", "layout", "sharding", "recompute"]) {
    $(key).addEventListener("change", () => {
      state[key] = $(key).value;
      forget(FORGOTTEN[key] ?? [], key);
      controls();
      refresh();
    });
  }
  for (const key of ["tp", "pp", "kmax"]) $(key).addEventListener("change", () => { state[key] = Number($(key).value); refresh(); });
  $("precision").addEventListener("change", () => { state.precision = $("precision").value || null; refresh(); });
  for (const key of ["seq", "steps"]) {
    $(key).addEventListener("change", () => {
      const value = Math.round(Number($(key).value));
      state[key] = value >= 1 ? value : null;
      refresh();
    });
  }
  for (const key of Object.keys(SCALES)) {
    $(key).addEventListener("input", () => {
      state[key] = SCALES[key].at(Number($(key).value));
      controls();
      refresh();
    });
  }
  for (const button of document.querySelectorAll("[data-reset]")) {
    button.addEventListener("click", () => { state[button.dataset.reset] = null; controls(); refresh(); });
  }
  $("sel").addEventListener("input", () => select(now.result.k[Number($("sel").value)]));
  $("timings").addEventListener("change", upload);
  $("timings-clear").addEventListener("click", () => { state.timings = null; $("timings").value = ""; refresh(); });
  $("pin").addEventListener("click", () => { [baseline, before] = [{ ...shown }, now]; remember(); render(); });
  $("swap").addEventListener("click", () => { [state, baseline, before] = [{ ...baseline }, { ...shown }, now]; controls(); refresh(); });
  $("why").addEventListener("click", why);
  $("share").addEventListener("click", () => { remember(); tell("Link to this page as it is", location.href); });
  $("copy-yaml").addEventListener("click", () => asText("yaml", "The set-up as a job file"));
  $("copy-command").addEventListener("click", () => asText("command", "The same question from the shell"));
  $("download").addEventListener("click", download);
  $("dialog-close").addEventListener("click", () => $("text-dialog").close());
  $("dialog-copy").addEventListener("click", copy);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", () => { if (now) charts(); });
}

/** Ask which changed input explains the difference to the baseline. */
async function why() {
  const [a, b] = [toRequest({ ...baseline, timings: null }), toRequest({ ...state, timings: null })];
  try {
    const found = (await (await post("/api/compare", { a, b })).json()).result;
    $("why-text").textContent = found.answer ?? "";
    $("why-text").hidden = false;
    fail(null);
  } catch (error) { fail(error); }
}

async function upload() {
  const [file] = $("timings").files;
  if (!file) return;
  try {
    if (file.size > 200000) throw new Error("the file is larger than 200 kB; perfmodel calibrate takes any size");
    const response = await post("/api/calibrate", { job: toRequest({ ...state, timings: null }), timings: await file.text() });
    state.timings = (await response.json()).timings;
    fail(null);
    refresh();
  } catch (error) {
    fail(error);
  }
}

async function asText(key, title) {
  try { tell(title, (await (await post("/api/job", toRequest(state))).json())[key]); } catch (error) { fail(error); }
}

function tell(title, text) {
  $("dialog-title").textContent = title;
  $("dialog-text").value = text;
  $("text-dialog").showModal();
  $("dialog-text").select();
  copy();
}

async function copy() {
  try {
    await navigator.clipboard.writeText($("dialog-text").value);
    $("status").textContent = "copied";
  } catch { $("dialog-text").select(); }
}

async function download() {
  try {
    const page = await (await post("/api/report", toRequest(state))).blob();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(page);
    link.download = `${state.workload}-on-${state.cluster}.html`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) { fail(error); }
}

// Start

function options(place, entries, group) {
  const made = new Map();
  for (const entry of entries) {
    const option = new Option(entry.label ?? entry.name, entry.name);
    const name = group ? entry[group] ?? "other" : null;
    if (name === null) { place.append(option); continue; }
    if (!made.has(name)) {
      const box = document.createElement("optgroup");
      box.label = name;
      made.set(name, box);
      place.append(box);
    }
    made.get(name).append(option);
  }
}

async function start() {
  const response = await fetch("/api/catalog");
  if (!response.ok) throw new Error(`the catalogue answered ${response.status}`);
  catalogue = await response.json();
  options($("workload"), catalogue.workloads, "kind");
  options($("cluster"), catalogue.clusters, "accelerator");
  options($("precision"), [{ name: "", label: "the usual" }, ...catalogue.precisions.map((name) => ({ name }))]);
  options($("sharding"), [{ name: "", label: "the usual" }, ...catalogue.shardings.map((name) => ({ name }))]);
  options($("kmax"), [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384].map((k) => ({ name: String(k) })));
  for (const key of ["tp", "pp"]) options($(key), [1, 2, 4, 8, 16, 32].map((k) => ({ name: String(k) })));
  for (const [key, list] of [["workload", catalogue.workloads], ["cluster", catalogue.clusters]]) {
    if (!list.some((entry) => entry.name === state[key])) {
      fail(new Error(`the catalogue has no ${key} named ${state[key]}`));
      state[key] = list.some((entry) => entry.name === DEFAULTS[key]) ? DEFAULTS[key] : list[0].name;
    }
  }
  listen();
  controls();
  await refresh();
  document.documentElement.dataset.ready = "yes";
}

start().catch(fail);
