// Line charts of the last minutes, as SVG. A chart can be read by the pointer, and by the arrow keys once it has the focus.

import { h, svg, short, NOT_YET } from "./dom.js";

// Until it is known how wide it is shown.
const WIDTH = 560;
const HEIGHT = 190;
const LEFT = 46;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
// What is older is not shown.
const SHOWN_S = 900;

export class Chart {
  // `series` are [{ key, label, class }]; `format` writes a value for people.
  constructor(title, series, format) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.at = null;
    this.points = null;
    this.width = WIDTH;
    this.values = h("div", { class: "chart-values" });
    this.drawing = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      class: "chart-drawing",
      role: "img",
      tabindex: "0",
      "aria-label": `${title}: ${NOT_YET}`,
    });
    // One unit is one pixel at any width, so that the texts stay readable.
    new ResizeObserver(([entry]) => this.resize(Math.round(entry.contentRect.width))).observe(this.drawing);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.read(null));
    this.drawing.addEventListener("keydown", (event) => this.step(event));
    this.drawing.addEventListener("blur", () => this.read(null));
    this.element = h("figure", { class: "card chart" }, h("figcaption", {}, h("h2", {}, title), this.values), this.drawing);
  }

  resize(width) {
    if (width < LEFT + RIGHT + 50 || width === this.width) return;
    this.width = width;
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    if (this.points) this.draw();
  }

  update(points) {
    this.points = recent(points, this.series);
    this.draw();
  }

  draw() {
    const { at } = this.points;
    const width = this.width - LEFT - RIGHT;
    const height = HEIGHT - TOP - BOTTOM;
    const highest = Math.max(1, ...this.series.flatMap((each) => this.points[each.key]).filter((value) => value !== null));
    const { step, top } = scale(highest);
    const first = at.length ? at[0] : 0;
    const last = at.length ? at[at.length - 1] : 1;
    const span = Math.max(last - first, 30);
    this.x = (time) => LEFT + width * (1 - (last - time) / span);
    const y = (value) => TOP + height * (1 - value / top);
    const parts = [];
    for (let value = 0; value <= top + step / 2; value += step) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(value), y2: y(value) }));
      parts.push(svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    parts.push(svg("text", { class: "tick", x: LEFT, y: HEIGHT - 7 }, ago(span)));
    parts.push(svg("text", { class: "tick", x: this.width - RIGHT, y: HEIGHT - 7, "text-anchor": "end" }, "now"));
    for (const each of this.series) {
      const line = path(at, this.points[each.key], this.x, y);
      if (line.area) parts.push(svg("path", { class: `area ${each.class}`, d: closed(line, y(0)) }));
      parts.push(svg("path", { class: `line ${each.class}`, d: line.d }));
    }
    if (this.at !== null && this.at < at.length) {
      const x = this.x(at[this.at]);
      parts.push(svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
      for (const each of this.series) {
        const value = this.points[each.key][this.at];
        if (value !== null) parts.push(svg("circle", { class: `dot ${each.class}`, cx: x, cy: y(value), r: 3.5 }));
      }
    }
    this.drawing.replaceChildren(...parts);
    this.tell();
  }

  tell() {
    const { at } = this.points;
    const index = this.at ?? at.length - 1;
    const when = this.at === null || !at.length ? "" : ago(at[at.length - 1] - at[index]);
    const texts = this.series.map((each) => {
      const value = index >= 0 ? this.points[each.key][index] : null;
      return { ...each, text: value === null || value === undefined ? "–" : this.format(value) };
    });
    this.values.replaceChildren(
      h("span", { class: "when" }, when),
      ...texts.map((each) =>
        h("span", { class: "key" }, h("i", { class: each.class, "aria-hidden": "true" }), `${each.label} `, h("b", {}, each.text)),
      ),
    );
    const described = texts.map((each) => {
      const known = this.points[each.key].filter((value) => value !== null);
      const most = known.length ? this.format(Math.max(...known)) : "unknown";
      return `${each.label} ${each.text}, highest ${most}`;
    });
    this.drawing.setAttribute("aria-label", `${this.title}, ${when || "now"}: ${described.join("; ")}. Arrow keys go back in time.`);
  }

  point(event) {
    if (!this.points || !this.points.at.length) return;
    const box = this.drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width;
    let best = 0;
    this.points.at.forEach((time, index) => {
      if (Math.abs(this.x(time) - x) < Math.abs(this.x(this.points.at[best]) - x)) best = index;
    });
    this.read(best);
  }

  step(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in moves) || !this.points || !this.points.at.length) return;
    event.preventDefault();
    const end = this.points.at.length - 1;
    this.read(Math.min(end, Math.max(0, (this.at ?? end) + moves[event.key])));
  }

  read(index) {
    this.at = index;
    if (this.points) this.draw();
  }
}

function recent(points, series) {
  const last = points.at[points.at.length - 1];
  const first = points.at.findIndex((time) => time >= last - SHOWN_S);
  if (first <= 0) return points;
  const found = { at: points.at.slice(first) };
  for (const { key } of series) found[key] = points[key].slice(first);
  return found;
}

function scale(highest) {
  const rough = highest / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(highest <= 4 ? 1 : 0, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
  return { step, top: Math.ceil(highest / step - 1e-9) * step };
}

function path(at, values, x, y) {
  let d = "";
  let open = false;
  const runs = [];
  at.forEach((time, index) => {
    const value = values[index];
    if (value === null || value === undefined) {
      open = false;
      return;
    }
    const place = `${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    if (open) runs[runs.length - 1].push(place);
    else runs.push([place]);
    d += `${open ? "L" : "M"}${place}`;
    open = true;
  });
  return { d, runs, area: runs.some((run) => run.length > 1) };
}

function closed(line, base) {
  return line.runs
    .filter((run) => run.length > 1)
    .map((run) => {
      const start = run[0].split(" ")[0];
      const end = run[run.length - 1].split(" ")[0];
      return `M${start} ${base.toFixed(1)}L${run.join("L")}L${end} ${base.toFixed(1)}Z`;
    })
    .join("");
}

function ago(seconds) {
  if (seconds < 1) return "now";
  return seconds < 100 ? `${Math.round(seconds)} s ago` : `${Math.round(seconds / 60)} min ago`;
}
