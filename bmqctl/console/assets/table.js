// Tables that are sorted by their heads and brought up to date in place, so that the focus and the place stay.

import { h, count, announce, scrollable, NOT_YET } from "./dom.js";

export const ROWS_MAX = 2000;
// Rows of a long table that are laid out together.
const GROUP = 50;

function kindOf(column) {
  if (column.isNumber) return "number";
  return column.isWhole ? "whole" : "";
}

export class Table {
  // `columns` are [{ key, label, isNumber, text(row), cell(row) }]; `key` tells rows apart. Without `sort` the order stays.
  // With `isLong`, groups of rows out of sight are not laid out: they are boxes of a grid then, and roles say what they are.
  constructor({ caption, columns, key, sort = null, isDescending = false, empty = "Nothing to show.", isLong = false }) {
    this.columns = columns;
    this.key = key;
    this.sort = sort;
    this.isDescending = isDescending;
    // None until the first answer.
    this.rows = null;
    this.known = new Map();
    this.heads = columns.map((column) => this.head(column));
    this.bodies = [h("tbody")];
    this.group = isLong ? GROUP : ROWS_MAX;
    // Rows are copies of it: with many rows that is faster than making each cell.
    this.pattern = h("tr", {}, columns.map((column, index) => h(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: kindOf(column) || null })));
    this.rest = h("p", { class: "muted rest", hidden: true });
    this.empty = empty;
    this.note = h("p", { class: "muted rest" }, `${caption}: ${NOT_YET}`);
    this.caption = caption;
    const table = h("table", {}, h("caption", { class: "offscreen" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.bodies);
    this.table = table;
    if (isLong) {
      table.className = "long";
      table.style.setProperty("--columns", columns.map((column) => column.width ?? "minmax(76px, 1fr)").join(" "));
      const roles = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row" };
      for (const each of [table, ...table.querySelectorAll("thead, tbody, tr"), this.pattern]) each.setAttribute("role", roles[each.localName]);
      for (const each of this.heads) each.setAttribute("role", "columnheader");
      for (const each of this.pattern.children) each.setAttribute("role", each.localName === "th" ? "rowheader" : "cell");
    }
    this.element = scrollable(h("div", { class: columns[0].key === "name" ? "table-card card named" : "table-card card" }, table, this.note, this.rest), caption);
  }

  head(column) {
    const kind = column.isNumber ? "number" : null;
    if (this.sort === null || column.isAction) return h("th", { scope: "col", class: kind }, column.label);
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
    const focused = this.table.contains(document.activeElement) ? document.activeElement : null;
    const order = shown.map((row) => this.line(row));
    this.place(order);
    if (this.known.size > 2 * order.length + 100) {
      const keys = new Set(shown.map(this.key));
      for (const key of this.known.keys()) if (!keys.has(key)) this.known.delete(key);
    }
    if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
    this.note.hidden = sorted.length > 0;
    if (this.rows) this.note.textContent = this.empty;
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

  // Put rows into their groups; groups that have the same as before are left alone.
  place(order) {
    for (let at = 0; at < Math.max(order.length, 1) || at / this.group < this.bodies.length; at += this.group) {
      const index = at / this.group;
      const lines = order.slice(at, at + this.group);
      if (index > 0 && lines.length === 0) {
        for (const body of this.bodies.splice(index)) body.remove();
        return;
      }
      if (index === this.bodies.length) {
        const body = this.bodies[0].cloneNode(false);
        this.bodies.push(body);
        this.table.append(body);
      }
      const body = this.bodies[index];
      if (lines.length !== body.childElementCount || lines.some((line, place) => body.children[place] !== line)) body.replaceChildren(...lines);
    }
  }

  sorted() {
    if (!this.rows) return [];
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
      const element = this.pattern.cloneNode(true);
      line = { element, cells: [...element.children], texts: [], tones: [] };
      this.known.set(key, line);
    }
    this.columns.forEach((column, index) => {
      const text = column.text(row);
      if (line.texts[index] === text) return;
      line.texts[index] = text;
      if (column.cell) line.cells[index].replaceChildren(column.cell(row));
      else line.cells[index].textContent = text;
      const tone = column.tone ? column.tone(row) : "";
      if (tone === (line.tones[index] ?? "")) return;
      line.tones[index] = tone;
      line.cells[index].className = `${kindOf(column)} ${tone}`.trim();
    });
    return line.element;
  }
}
