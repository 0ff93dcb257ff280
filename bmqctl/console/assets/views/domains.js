// The domains of the queues, and one domain.

import { get } from "../api.js";
import { h, age, bytes, count, rate, used, NOT_YET } from "../dom.js";
import { LAG, NAME, NODE, NUMBERS, broken, rowsOf } from "../rows.js";
import { confirmAndAct } from "../dialogs.js";
import { Table } from "../table.js";

function domainOf(name) {
  const found = /^bmq:\/\/([^/]+)\//.exec(name);
  return found ? found[1] : name;
}

export class DomainsView {
  constructor() {
    this.title = h("h1", { tabindex: "-1" }, "Domains");
    this.table = new Table({
      caption: "Domains",
      sort: "name",
      key: (row) => row.name,
      empty: "No domain has a queue yet.",
      columns: [
        { key: "name", label: "Domain", text: (row) => row.name, cell: (row) => h("a", { href: `#/domain/${encodeURIComponent(row.name)}` }, broken(row.name)) },
        { key: "queues", label: "Queues", isNumber: true, text: (row) => count(row.queues) },
        { key: "rate_in", label: "In/s", isNumber: true, text: (row) => rate(row.rate_in) },
        { key: "rate_out", label: "Out/s", isNumber: true, text: (row) => rate(row.rate_out) },
        { key: "backlog", label: "Backlog", isNumber: true, text: (row) => count(row.backlog), tone: (row) => (row.backlog ? "strong" : "") },
        { key: "oldest_s", label: "Oldest", isNumber: true, text: (row) => age(row.oldest_s) },
      ],
    });
    this.element = h("div", { class: "view" }, this.title, this.table.element);
  }

  update(overview) {
    const domains = new Map();
    for (const row of rowsOf(overview)) {
      const name = domainOf(row.name);
      const known = domains.get(name) ?? { name, queues: 0, rate_in: null, rate_out: null, backlog: null, oldest_s: null };
      known.queues += 1;
      for (const key of ["rate_in", "rate_out", "backlog"]) if (row[key] !== null) known[key] = (known[key] ?? 0) + row[key];
      if (row.oldest_s !== null) known.oldest_s = Math.max(known.oldest_s ?? 0, row.oldest_s);
      domains.set(name, known);
    }
    this.table.update([...domains.values()]);
  }
}

export class DomainView {
  constructor(session, parameters, name) {
    this.name = name;
    this.path = h("p", { class: "path" }, h("a", { href: "#/domains" }, "Domains"));
    this.title = h("h1", { tabindex: "-1" }, broken(name));
    this.fault = h("p", { class: "fault-line", role: "status" });
    this.facts = h("dl", { class: "facts card", hidden: true });
    this.config = h("pre", { class: "code", tabindex: "0", role: "group", "aria-label": "Configuration in force" });
    this.configCard = h("div", { class: "card pad" }, h("p", { class: "muted rest" }, `Configuration: ${NOT_YET}`));
    this.table = new Table({
      caption: "Queues of the domain",
      isLong: true,
      sort: "backlog",
      isDescending: true,
      key: (row) => row.name,
      columns: [NAME, NODE, ...NUMBERS, LAG],
      empty: "The domain has no queues.",
    });
    this.reconfigure = h("button", { type: "button", onclick: () => this.askToReconfigure() }, "Reconfigure…");
    this.element = h("div", { class: "view" }, this.path, h("div", { class: "head-line" }, this.title, this.reconfigure), this.fault, this.facts, h("h2", {}, "Queues"), this.table.element,
      h("h2", {}, "Configuration in force"), this.configCard);
    this.load();
  }

  async load() {
    try {
      const found = await get("/api/ask/domain", { name: this.name });
      this.config.textContent = found.config;
      if (!this.config.isConnected) this.configCard.replaceChildren(this.config);
      const facts = [["Messages", found.room.messages, count], ["Bytes", found.room.bytes, bytes]];
      this.facts.hidden = false;
      this.facts.replaceChildren(...facts.map(([name, room, write]) => h("div", {}, h("dt", {}, name), h("dd", {}, used(room, write)))));
      this.fault.textContent = "";
    } catch (fault) {
      this.fault.textContent = fault.message;
    }
  }

  async askToReconfigure() {
    if (await confirmAndAct("reconfigure", { name: this.name })) await this.load();
  }

  update(overview) {
    this.table.update(rowsOf(overview).filter((row) => domainOf(row.name) === this.name));
  }
}
