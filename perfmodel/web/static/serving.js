// A service: the form to a question, the answer to charts and a table.
import { legend, lines, shares } from "/charts.js";
import { number, quantity } from "/state.js";

const $ = (id) => document.getElementById(id);
const TEXTS = ["workload", "cluster", "precision", "kv_precision", "engine", "load"];
const NUMBERS = ["input_tokens", "output_tokens", "spread", "prefix_hit", "ttft_p99_s", "tpot_p99_s", "demand_per_s", "price"];
const LOADS = { rate: "requests/s", concurrency: "in flight" };
let busy = false;
let again = false;

function question() {
  const asked = {};
  for (const id of TEXTS) if ($(id).value !== "") asked[id] = $(id).value;
  for (const id of NUMBERS) if ($(id).value !== "" && Number.isFinite($(id).valueAsNumber)) asked[id] = $(id).valueAsNumber;
  if ($("tp").value !== "") asked.tp = Number($("tp").value);
  return asked;
}

function remember(asked) {
  history.replaceState(null, "", `?${new URLSearchParams(Object.entries(asked).map(([key, value]) => [key, String(value)]))}`);
}

/** One question at a time; while it is out, only the latest wish is kept. */
async function refresh() {
  waiting(true);
  if (busy) { again = true; return; }
  busy = true;
  do {
    again = false;
    const asked = question();
    remember(asked);
    const started = performance.now();
    try {
      const response = await fetch("/api/service", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(asked) });
      const answer = await response.json();
      if (response.ok) { fail(null); render(answer); } else fail(answer.error);
    } catch (error) {
      fail({ message: String(error.message ?? error), problems: [] });
    }
    $("status").textContent = `answered in ${Math.round(performance.now() - started)} ms`;
  } while (again);
  busy = false;
  waiting(false);
}

/** Marks the results as those of an earlier question while a new one is out. */
function waiting(out) {
  $("results").setAttribute("aria-busy", String(out));
  $("results").classList.toggle("old", out);
}

function fail(error) {
  $("error").hidden = error === null;
  if (error === null) { $("error").replaceChildren(); return; }
  if ($("curve").childElementCount === 0) $("answer").textContent = "";
  const list = document.createElement("ul");
  for (const problem of error.problems ?? []) {
    const item = document.createElement("li");
    item.textContent = [problem.field ? `${problem.field}: ` : "", problem.message, problem.help ? ` (${problem.help})` : ""].join("");
    list.append(item);
  }
  $("error").replaceChildren(error.message, list);
}

function render(answer) {
  const result = answer.result;
  const x = result.load;
  const xTitle = LOADS[result.load_kind] ?? "load";
  $("answer").textContent = answer.summary.answer;
  $("subject").textContent = answer.summary.title;
  const limit = (name) => (result.slo ?? []).find((one) => one.quantity === name)?.limit_s;
  const nothing = () => {};
  for (const name of ["ttft", "tpot"]) {
    const times = result[`${name}_s`];
    const ms = (values) => values.map((value) => (value === null ? null : 1e3 * value));
    const series = [
      { name: "p99, 90 % band", look: "s0", x, y: ms(times.p99), low: ms(times.p99_low), high: ms(times.p99_high) },
      { name: "mean", look: "s1", x, y: ms(times.mean) },
    ];
    const bound = limit(name);
    if (bound) series.push({ name: "objective", look: "ideal dashed", x, y: x.map(() => 1e3 * bound) });
    if (name === "ttft") legend($("legend-ttft"), series.map((one) => ({ name: one.name, look: one.look })));
    lines($(`chart-${name}`), {
      title: `${name.toUpperCase()} over load`, alt: answer.summary.answer, xTitle, yTitle: "ms", series, yLog: true, onSelect: nothing,
      show: (load) => [`p99 ${quantity(times.p99[x.indexOf(load)], "s")}`, `mean ${quantity(times.mean[x.indexOf(load)], "s")}`],
    });
  }
  const parts = Object.entries(result.parts_s).filter(([, values]) => values.some((value) => value)).map(([name, values]) => ({ name: name.replaceAll("_", " "), values }));
  legend($("legend-parts"), parts.map((part, i) => ({ name: part.name, look: `s${i % 8} block` })));
  shares($("chart-parts"), {
    title: "Step by part", alt: "Share of each part at each load.", xTitle, k: x, parts, onSelect: nothing,
    show: (load) => parts.map((part) => `${part.name} ${quantity(part.values[x.indexOf(load)], "s")}`),
  });
  lines($("chart-cost"), {
    title: "Cost over load", alt: "A token costs less on a busier service.", xTitle, yTitle: "USD", yLog: true, onSelect: nothing,
    series: [{ name: "cost", look: "s0", x, y: result.usd_per_million_tokens }],
    show: (load) => [quantity(result.usd_per_million_tokens[x.indexOf(load)], "USD")],
  });
  table(result, xTitle);
  $("notes").replaceChildren(...answer.summary.notes.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

function table(result, xTitle) {
  const heads = [xTitle, "output tokens/s", "TTFT p99", "TPOT p99", "batch", "USD/Mtok", "slo"];
  const rows = result.load.map((load, i) => [
    number(load), number(result.throughput_out_tokens_per_s[i]), quantity(result.ttft_s.p99[i], "s"), quantity(result.tpot_s.p99[i], "s"),
    number(result.batch[i]), number(result.usd_per_million_tokens[i]), result.within_slo[i] === null ? "" : result.within_slo[i] ? "kept" : "broken",
  ]);
  const [head, body] = ["thead", "tbody"].map((name) => document.createElement(name));
  head.append(line(heads, "col"));
  body.append(...rows.map((cells) => line(cells, "row")));
  $("curve").replaceChildren(head, body);
}

function line(cells, scope) {
  const made = document.createElement("tr");
  made.append(...cells.map((text, i) => {
    const place = document.createElement(scope === "col" || i === 0 ? "th" : "td");
    if (place.tagName === "TH") place.scope = scope;
    place.classList.add("n");
    place.textContent = text;
    return place;
  }));
  return made;
}

function options(place, entries) {
  place.replaceChildren(...entries.map((entry) => {
    const made = document.createElement("option");
    made.value = entry.name;
    made.textContent = entry.label ?? entry.name;
    return made;
  }));
}

async function begin() {
  const response = await fetch("/api/catalog");
  if (!response.ok) throw new Error(`the catalogue answered ${response.status}`);
  const catalogue = await response.json();
  const served = new Set(["decoder-transformer", "moe-transformer", "hybrid-mamba-transformer"]);
  options($("workload"), catalogue.workloads.filter((one) => served.has(one.kind)));
  options($("cluster"), catalogue.clusters);
  $("workload").value = "llama3-8b";
  $("cluster").value = "dgx-h100";
  const said = new URLSearchParams(location.search);
  for (const id of [...TEXTS, ...NUMBERS, "tp"]) {
    if (said.has(id)) $(id).value = said.get(id);
    else if (said.size && NUMBERS.includes(id) && ["ttft_p99_s", "tpot_p99_s"].includes(id)) $(id).value = "";
  }
  $("controls").addEventListener("input", () => refresh());
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  await refresh();
}

begin().catch((error) => fail({ message: String(error.message ?? error), problems: [] }));
