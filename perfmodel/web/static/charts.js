// Charts as SVG, built node by node: text is text, whatever it holds.
import { number } from "/state.js";

const NS = "http://www.w3.org/2000/svg";

function node(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const tick = (value) => {
  for (const [size, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(4))}${sign}`;
  }
  return Math.abs(value) >= 1e4 ? `${Number((value / 1e3).toPrecision(4))}k` : `${Number(value.toPrecision(4))}`;
};

function logTicks(low, high, most) {
  const first = Math.ceil(Math.log2(low) - 1e-9);
  const last = Math.floor(Math.log2(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  const found = [];
  for (let i = first; i <= last; i += step) found.push(2 ** i);
  return found.length ? found : [low];
}

function niceTicks(low, high, most) {
  const raw = (high - low) / most;
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) found.push(i * step);
  return found;
}

function scale(low, high, start, end, log) {
  const f = log ? Math.log2 : (v) => v;
  const span = f(high) - f(low) || 1;
  return (value) => start + ((f(Math.max(value, log ? 1e-300 : -Infinity)) - f(low)) / span) * (end - start);
}

const known = (v) => v !== null && v !== undefined && Number.isFinite(v);

/**
 * Draw into `place`. spec: {title, alt, yTitle, series: [{name, look, x, y, low, high}], marks: [{label, x}],
 * bounds: [{label, x}], floor, yLog, percent, select, show(value), onSelect(x), height}.
 */
export function lines(place, spec) {
  const width = Math.max(280, Math.round(place.clientWidth || 640));
  const height = spec.height ?? Math.round(Math.min(380, Math.max(230, width * 0.52)));
  const factor = spec.percent ? 100 : 1;
  const xs = spec.series.flatMap((s) => s.x);
  let ys = spec.series.flatMap((s) => [...s.y, ...(s.low ?? []), ...(s.high ?? [])]).filter(known);
  if (spec.yLog) ys = ys.filter((y) => y > 0);
  const frame = { left: 48, top: 24, right: width - 12, bottom: height - 38 };
  const svg = begin(place, spec, width, height);
  if (!xs.length || !ys.length) {
    svg.append(node("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "tick" }, "no values"));
    return;
  }
  const [xLow, xHigh] = [Math.min(...xs), Math.max(...xs)];
  const yLow = spec.yLog ? Math.min(...ys) : 0;
  const yHigh = (spec.yLog ? 1 : 1.06) * Math.max(...ys, spec.floor ?? 0);
  const X = scale(xLow, xHigh, frame.left + 8, frame.right - 8, true);
  const Y = scale(yLow, yHigh, frame.bottom - 4, frame.top + 4, spec.yLog);
  axes(svg, frame, spec.xTitle ?? "K", spec.yTitle);
  for (const x of logTicks(xLow, xHigh, Math.floor(width / 52))) xTick(svg, frame, X(x), tick(x));
  const yTicks = spec.yLog ? logTicks(yLow, yHigh, 7) : niceTicks(0, yHigh * factor, 5).map((y) => y / factor);
  for (const y of yTicks) yTick(svg, frame, Y(y), tick(y * factor));
  if (spec.floor !== undefined) {
    const y = Y(spec.floor);
    svg.append(node("rect", { class: "zone", x: frame.left, y, width: frame.right - frame.left, height: frame.bottom - y }));
    svg.append(node("line", { class: "limit", x1: frame.left, x2: frame.right, y1: y, y2: y }));
  }
  for (const bound of spec.bounds ?? []) {
    if (bound.x <= xLow || bound.x >= xHigh) continue;
    svg.append(node("line", { class: "boundary", x1: X(bound.x), x2: X(bound.x), y1: frame.top, y2: frame.bottom }));
    svg.append(node("text", { class: "small", x: X(bound.x) + 4, y: frame.bottom - 6 }, bound.label));
  }
  if (known(spec.select) && spec.select >= xLow && spec.select <= xHigh) {
    svg.append(node("line", { class: "select", x1: X(spec.select), x2: X(spec.select), y1: frame.top, y2: frame.bottom }));
  }
  for (const series of spec.series) svg.append(curve(series, X, Y));
  rings(svg, spec, X, Y, frame);
  hover(place, svg, spec, frame, X);
}

function curve(series, X, Y) {
  const group = node("g", { class: `series ${series.look}` });
  const rows = series.x.map((x, i) => [x, series.y[i], series.low?.[i], series.high?.[i]]);
  const band = rows.filter(([, , low, high]) => known(low) && known(high) && low > 0);
  if (band.length > 1) {
    const upper = band.map(([x, , , high]) => `${X(x).toFixed(1)},${Y(high).toFixed(1)}`);
    const lower = [...band].reverse().map(([x, , low]) => `${X(x).toFixed(1)},${Y(low).toFixed(1)}`);
    group.append(node("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
  }
  const points = rows.filter(([, y]) => known(y));
  if (!series.look.includes("dots") && points.length > 1) {
    group.append(node("polyline", { class: "line", points: points.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`).join(" ") }));
  }
  if (!/dashed|ghost/.test(series.look) || points.length === 1) {
    for (const [x, y] of points) group.append(node("circle", { class: "dot", cx: X(x).toFixed(1), cy: Y(y).toFixed(1), r: 3.6 }));
  }
  return group;
}

function rings(svg, spec, X, Y, frame) {
  const main = spec.series[0];
  const together = new Map();
  for (const mark of spec.marks ?? []) together.set(mark.x, [...(together.get(mark.x) ?? []), mark.label]);
  let [lastX, lastY] = [-1e9, -1e9];
  for (const x of [...together.keys()].sort((a, b) => a - b)) {
    const y = main.y[main.x.indexOf(x)];
    if (!known(y)) continue;
    const label = together.get(x).join(", ");
    svg.append(node("circle", { class: "ring", cx: X(x), cy: Y(y), r: 7 }));
    let at = Math.min(frame.bottom - 8, Y(y) + 24);
    if (X(x) - lastX < 100 && Math.abs(at - lastY) < 18) at = lastY + 18;
    [lastX, lastY] = [X(x), at];
    const end = X(x) + 7 * label.length > frame.right;
    svg.append(node("text", { class: "mark", x: X(x) + (end ? -4 : 4), y: at, "text-anchor": end ? "end" : "start" }, label));
  }
}

/** Bars of 100 %: spec {title, alt, k, parts: [{name, values}], select, show, onSelect}. */
export function shares(place, spec) {
  const width = Math.max(280, Math.round(place.clientWidth || 400));
  const height = spec.height ?? Math.round(Math.min(380, Math.max(230, width * 0.52)));
  const frame = { left: 48, top: 24, right: width - 12, bottom: height - 38 };
  const svg = begin(place, spec, width, height);
  axes(svg, frame, spec.xTitle ?? "K", "share [%]");
  for (const share of [0, 0.25, 0.5, 0.75, 1]) yTick(svg, frame, frame.bottom - share * (frame.bottom - frame.top - 4), tick(share * 100));
  const columns = spec.k.map((k, i) => ({ k, values: spec.parts.map((part) => Math.max(0, part.values[i] ?? 0)) }))
    .filter((column) => column.values.some((v) => v > 0));
  const slot = (frame.right - frame.left) / Math.max(1, columns.length);
  const skip = Math.ceil(34 / slot);
  const centres = new Map();
  columns.forEach((column, place_) => {
    const total = column.values.reduce((a, b) => a + b, 0);
    let edge = frame.bottom;
    column.values.forEach((value, j) => {
      const tall = (value / total) * (frame.bottom - frame.top - 4);
      edge -= tall;
      svg.append(node("rect", { class: `bar s${j % 8}`, x: frame.left + slot * (place_ + 0.12), y: edge, width: slot * 0.76, height: tall }));
    });
    const middle = frame.left + slot * (place_ + 0.5);
    centres.set(column.k, middle);
    if (place_ % skip === 0) svg.append(node("text", { class: "tick", x: middle, y: frame.bottom + 15, "text-anchor": "middle" }, tick(column.k)));
  });
  const series = [{ name: "", x: columns.map((c) => c.k), y: [] }];
  hover(place, svg, { ...spec, series }, frame, (x) => centres.get(x) ?? frame.left);
}

function begin(place, spec, width, height) {
  const kept = place.querySelector("svg");
  const svg = kept ?? node("svg", { role: "img", tabindex: "0" });
  svg.replaceChildren(node("title", {}, spec.title), node("desc", {}, spec.alt));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-label", `${spec.title}. ${spec.alt}`);
  if (!kept) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    place.replaceChildren(svg, tip);
  }
  return svg;
}

function axes(svg, frame, xTitle, yTitle) {
  svg.append(node("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }));
  svg.append(node("text", { class: "axis-title", x: (frame.left + frame.right) / 2, y: frame.bottom + 33, "text-anchor": "middle" }, xTitle));
  svg.append(node("text", { class: "axis-title", x: 2, y: 13 }, yTitle));
}

function xTick(svg, frame, x, label) {
  svg.append(node("line", { class: "grid", x1: x, x2: x, y1: frame.top, y2: frame.bottom }));
  svg.append(node("text", { class: "tick", x, y: frame.bottom + 15, "text-anchor": "middle" }, label));
}

function yTick(svg, frame, y, label) {
  svg.append(node("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y, y2: y }));
  svg.append(node("text", { class: "tick", x: frame.left - 6, y: y + 4, "text-anchor": "end" }, label));
}

/** Pointer shows the values at the nearest K and a click selects it; arrows do both from the keyboard. */
function hover(place, svg, spec, frame, X) {
  const tip = place.querySelector(".tip");
  const ks = [...new Set(spec.series.flatMap((s) => s.x))].sort((a, b) => a - b);
  if (!ks.length) return;
  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    return ks.reduce((best, k) => (Math.abs(X(k) - at) < Math.abs(X(best) - at) ? k : best));
  };
  const show = (k) => {
    tip.textContent = [`${spec.xTitle ?? "K"} = ${number(k)}`, ...spec.show(k)].join("\n");
    tip.hidden = false;
    const at = (X(k) / svg.viewBox.baseVal.width) * svg.clientWidth;
    const left = at + 12 + tip.offsetWidth > place.clientWidth ? at - 12 - tip.offsetWidth : at + 12;
    tip.style.left = `${Math.max(0, left)}px`;
  };
  svg.onpointermove = (event) => show(nearest(event));
  svg.onpointerleave = () => { tip.hidden = true; };
  svg.onblur = () => { tip.hidden = true; };
  svg.onclick = (event) => spec.onSelect?.(nearest(event));
  svg.onkeydown = (event) => {
    const index = Math.max(0, ks.indexOf(spec.select));
    const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: ks.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    spec.onSelect?.(ks[Math.max(0, Math.min(ks.length - 1, next))]);
  };
}

/** Legend entries: [{name, look}]. */
export function legend(place, entries) {
  place.replaceChildren(...entries.map(({ name, look }) => {
    const item = document.createElement("span");
    const swatch = document.createElement("span");
    swatch.className = `swatch ${look}`;
    item.append(swatch, name);
    return item;
  }));
}
