"use strict";
// Hover values, series toggles and sortable tables. The page is complete without it.
(() => {
  const live = document.createElement("div");
  live.className = "unseen";
  live.setAttribute("aria-live", "polite");
  document.body.append(live);

  for (const figure of document.querySelectorAll("figure")) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    figure.append(tip);
    for (const svg of figure.querySelectorAll("svg.chart")) watch(figure, svg, tip);
    for (const key of figure.querySelectorAll(".key")) {
      key.addEventListener("click", () => {
        const on = key.getAttribute("aria-pressed") !== "true";
        key.setAttribute("aria-pressed", String(on));
        for (const part of figure.querySelectorAll(`svg [data-series="${key.dataset.series}"]`)) {
          part.classList.toggle("off", !on);
        }
      });
    }
  }

  function watch(figure, svg, tip) {
    const hits = [...svg.querySelectorAll(".hit")];
    if (!hits.length) return;
    for (const hit of hits) {
      const title = hit.querySelector("title");
      hit.dataset.tip = title.textContent;
      title.remove();
    }
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor");
    let current = -1;

    function show(index, aloud) {
      current = index;
      const hit = hits[index];
      const x = hit.dataset.x;
      const y = Number(hit.getAttribute("y"));
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.setAttribute("y1", y);
      cursor.setAttribute("y2", y + Number(hit.getAttribute("height")));
      svg.append(cursor);
      tip.textContent = hit.dataset.tip;
      tip.hidden = false;
      const frame = figure.getBoundingClientRect();
      const box = svg.getBoundingClientRect();
      const at = box.left - frame.left + (Number(x) / svg.viewBox.baseVal.width) * box.width;
      const room = frame.width - tip.offsetWidth - 8;
      const left = at + 14 + tip.offsetWidth > frame.width ? at - 14 - tip.offsetWidth : at + 14;
      tip.style.left = `${Math.max(8, Math.min(room, left))}px`;
      tip.style.top = `${box.top - frame.top + 30}px`;
      if (aloud) live.textContent = hit.dataset.tip.replaceAll("\n", ", ");
    }
    function hide() {
      tip.hidden = true;
      cursor.remove();
      current = -1;
    }
    svg.addEventListener("pointermove", (event) => {
      const index = hits.indexOf(event.target);
      if (index >= 0) show(index, false);
    });
    svg.addEventListener("pointerdown", (event) => {
      const index = hits.indexOf(event.target);
      if (index >= 0) show(index, false);
    });
    svg.addEventListener("pointerleave", hide);
    svg.tabIndex = 0;
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show(Math.max(0, Math.min(hits.length - 1, current + step)), true);
      else if (event.key === "Home") show(0, true);
      else if (event.key === "End") show(hits.length - 1, true);
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => {
          const cell = row.cells[column];
          const raw = cell.dataset.v;
          return raw === undefined ? cell.textContent : raw === "" ? null : Number(raw);
        };
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const x = value(a);
          const y = value(b);
          if (x === null || y === null) return (x === null) - (y === null); // no value: always last
          const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
          return down ? -order : order;
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  // A printed page shows what a screen folds.
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
  });
})();
