// The table of all queues, or topics.

import { h, announce, count } from "../dom.js";
import { LAG, NAME, NODE, NUMBERS, rowsOf } from "../rows.js";
import { Table } from "../table.js";

export class QueuesView {
  constructor(session, parameters) {
    this.word = session.system === "RocketMQ" ? "topic" : "queue";
    const title = this.word === "topic" ? "Topics" : "Queues";
    this.title = h("h1", { tabindex: "-1" }, title);
    this.amount = h("span", { class: "muted", id: "amount" });
    this.search = h("input", { type: "search", id: "search", placeholder: `part of a name`, autocomplete: "off", spellcheck: "false", "aria-describedby": "amount", oninput: () => this.filter() });
    this.search.value = parameters.get("filter") ?? "";
    this.busy = h("input", { type: "checkbox", id: "busy", onchange: () => this.filter() });
    this.table = new Table({
      caption: title,
      sort: "backlog",
      isLong: true,
      isDescending: true,
      key: (row) => row.name,
      columns: [{ ...NAME, label: this.word === "topic" ? "Topic" : "Queue" }, NODE, ...NUMBERS, LAG],
      empty: `There is no such ${this.word}.`,
    });
    this.rows = null;
    this.element = h("div", { class: "view" }, this.title,
      h("div", { class: "tools", role: "search" },
        h("label", { for: "search" }, "Filter"), this.search,
        h("label", { for: "busy", class: "check" }, this.busy, " only with messages"), this.amount),
      this.table.element);
  }

  update(overview) {
    this.rows = rowsOf(overview);
    this.draw();
  }

  filter() {
    this.draw();
    announce(this.amount.textContent);
  }

  draw() {
    if (!this.rows) return;
    const text = this.search.value.trim().toLowerCase();
    const rows = this.rows.filter((row) => row.name.toLowerCase().includes(text) && (!this.busy.checked || row.backlog));
    this.table.update(rows);
    this.amount.textContent = rows.length === this.rows.length ? `${count(rows.length)} ${this.word}${rows.length === 1 ? "" : "s"}` : `${count(rows.length)} of ${count(this.rows.length)}`;
  }
}
