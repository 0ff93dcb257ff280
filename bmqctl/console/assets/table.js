// Tables that are sorted by their heads and brought up to date in place, so that the focus and the place stay.

import { h, count, announce } from "./dom.js";

export const ROWS_MAX = 2000;

export class Table {
  // `columns` are [{ key, label, isNumber, text(row), cell(row) }]; `key` tells rows apart. Without `sort` the order stays.
  constructor({ caption, columns, key, sort = null, isDescending = false, empty = "Nothing to show." }) {
    this.columns = columns;
    this.key = key;
    this.sort = sort;
    this.isDescending = isDescending;
    this.rows = [];
    this.known = new Map();
    this.heads = columns.map((column) => this.head(column));
    this.body = h("tbody");
    this.rest = h("p", { class: "muted rest", hidden: true });
    this.empty = h("p", { class: "muted rest", hidden: true }, empty);
    this.caption = caption;
    const table = h("table", {}, h("caption", { class: "offscreen" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element = h("div", { class: "table-card card" }, table, this.empty, this.rest);
  }

  head(column) {
    const kind = column.isNumber ? "number" : null;
    if (this.sort === null) return h("th", { scope: "col", class: kind }, column.label);
    const arrow = h("span", { class: "arrow", "aria-hidden": "true" });
    const words = column.isNumber ? [arrow, column.label] : [column.label, arrow];
    const button = h("button", { type: "button", class: "sort", onclick: () => this.sortBy(column.key) }, words);
    return h("th", { scope: "col", class: kind }, button);
  }

  sortBy(key) {
    const column = this.columns.find((each) => each.key === key);
    this.isDescending = this.sort === key ? !this.isDescending : Boolean(column.isNumber);
    this.sort = key;
    this.draw();
    announce(`Sorted by ${column.label}, ${this.isDescending ? "descending" : "ascending"}`);
  }

  update(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const sorted = this.sorted();
    const shown = sorted.slice(0, ROWS_MAX);
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const order = shown.map((row) => this.line(row));
    if (order.length !== this.body.childElementCount || order.some((line, index) => this.body.children[index] !== line)) {
      this.body.replaceChildren(...order);
    }
    if (this.known.size > 2 * order.length + 100) {
      const keys = new Set(shown.map(this.key));
      for (const key of this.known.keys()) if (!keys.has(key)) this.known.delete(key);
    }
    if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
    this.empty.hidden = sorted.length > 0;
    this.rest.hidden = sorted.length <= ROWS_MAX;
    this.rest.textContent = `${count(sorted.length - ROWS_MAX)} more: narrow them down by the filter.`;
    this.columns.forEach((column, index) => {
      const isOwn = column.key === this.sort;
      if (isOwn) this.heads[index].setAttribute("aria-sort", this.isDescending ? "descending" : "ascending");
      else this.heads[index].removeAttribute("aria-sort");
      const arrow = this.heads[index].querySelector(".arrow");
      if (arrow) arrow.textContent = isOwn ? (this.isDescending ? "▼" : "▲") : "";
    });
  }

  sorted() {
    const column = this.columns.find((each) => each.key === this.sort);
    if (!column) return this.rows;
    const turn = this.isDescending ? -1 : 1;
    const value = column.value ?? ((row) => row[column.key]);
    const compare = (left, right) => {
      const [a, b] = [value(left), value(right)];
      if (a === null || b === null) return (a === null) - (b === null);
      if (a < b) return -turn;
      return a > b ? turn : 0;
    };
    return [...this.rows].sort(compare);
  }

  line(row) {
    const key = this.key(row);
    let line = this.known.get(key);
    if (!line) {
      const cells = this.columns.map((column, index) => h(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: column.isNumber ? "number" : null }));
      line = { element: h("tr", {}, cells), cells, texts: [] };
      this.known.set(key, line);
    }
    this.columns.forEach((column, index) => {
      const text = column.text(row);
      if (line.texts[index] === text) return;
      line.texts[index] = text;
      if (column.cell) line.cells[index].replaceChildren(column.cell(row));
      else line.cells[index].textContent = text;
      if (column.tone) line.cells[index].className = [column.isNumber ? "number" : "", column.tone(row)].join(" ").trim();
    });
    return line.element;
  }
}
