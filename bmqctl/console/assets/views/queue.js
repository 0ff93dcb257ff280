// One queue: charts, why messages wait, apps, consumers.

import { get } from "../api.js";
import { Chart } from "../chart.js";
import { h, bytes, count, rate, used } from "../dom.js";
import { LAG, NUMBERS, broken, rowOf, shown } from "../rows.js";
import { confirmAndAct, resetOffsets } from "../dialogs.js";
import { Table } from "../table.js";
import { Messages } from "./messages.js";

export class QueueView {
  constructor(session, parameters, name) {
    this.name = name;
    const isRocketmq = session.system === "RocketMQ";
    const part = isRocketmq ? "Group" : "App";
    this.isAsking = false;
    this.title = h("h1", { tabindex: "-1" }, broken(shown(name)));
    const domain = /^bmq:\/\/([^/]+)\//.exec(name);
    this.path = h("p", { class: "path" }, h("a", { href: "#/queues" }, isRocketmq ? "Topics" : "Queues"), domain ? [" / ", h("a", { href: `#/domain/${encodeURIComponent(domain[1])}` }, domain[1])] : null);
    this.fault = h("p", { class: "fault-line", role: "status" });
    this.facts = h("dl", { class: "facts card", hidden: true });
    this.flow = new Chart("Messages per second", [
      { key: "rate_in", label: "in", class: "first" },
      { key: "rate_out", label: "out", class: "second" },
    ], rate);
    this.backlog = new Chart("Backlog", [{ key: "backlog", label: "messages", class: "third" }], count);
    this.causes = h("section", { class: "card pad", "aria-labelledby": "causes", hidden: true });
    this.parts = new Table({
      caption: `${part}s`,
      sort: "part",
      key: (row) => row.part,
      columns: [{ key: "part", label: part, text: (row) => row.part }, ...NUMBERS.filter((each) => isRocketmq || each.key !== "consumers"), LAG, isRocketmq
        ? { key: "reset", label: "Offsets", isAction: true, text: () => "Reset…", cell: (row) => h("button", { type: "button", class: "quiet", "aria-label": `Reset the offsets of group ${row.part}`, onclick: () => this.askToReset(row.part) }, "Reset…") }
        : { key: "purge", label: "Purge", isAction: true, text: () => "Purge…", cell: (row) => h("button", { type: "button", class: "quiet", "aria-label": `Purge app ${row.part}`, onclick: () => this.askToPurge(row.part) }, "Purge…") }],
    });
    this.partsSection = h("section", { hidden: true }, h("h2", {}, `${part}s`), this.parts.element);
    this.consumers = new Table({
      caption: "Consumers",
      key: (row) => `${row.client} ${row.app}`,
      empty: isRocketmq ? "No consumer is connected." : "Nobody consumes this queue.",
      columns: [
        { key: "client", label: "Client", text: (row) => row.client },
        { key: "app", label: part, text: (row) => row.app },
        { key: "unconfirmed", label: isRocketmq ? "Lag of the group" : "Unconfirmed", isNumber: true, text: (row) => (row.limit === null ? count(row.unconfirmed) : `${count(row.unconfirmed)} of ${count(row.limit)}`), tone: (row) => (row.is_full ? "warn" : "") },
      ],
    });
    this.consumersSection = h("section", {}, h("h2", {}, "Consumers"), this.consumers.element);
    this.messages = new Messages(name, isRocketmq);
    this.isRocketmq = isRocketmq;
    this.purge = h("button", { type: "button", class: "danger-line", hidden: isRocketmq, onclick: () => this.askToPurge("") }, "Purge…");
    this.element = h("div", { class: "view" }, this.path, h("div", { class: "head-line" }, this.title, this.purge), this.fault, this.facts,
      h("div", { class: "charts" }, this.flow.element, this.backlog.element),
      this.causes, this.partsSection, this.consumersSection, this.messages.element);
  }

  async askToReset(group) {
    if (await resetOffsets(this.name, group)) await this.update();
  }

  async askToPurge(part) {
    if (await confirmAndAct("purge", { name: this.name, part })) {
      await this.messages.move(0);
      await this.update();
    }
  }

  async update() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      this.draw(await get("/api/detail", { name: this.name }));
      this.fault.textContent = "";
    } catch (fault) {
      this.fault.textContent = fault.message;
    } finally {
      this.isAsking = false;
    }
  }

  draw(detail) {
    const columns = ["name", "part", "node", "rate_in", "rate_out", "backlog", "oldest_s", "consumers", "lag"];
    const row = detail.row ? rowOf(columns, detail.row) : null;
    const facts = [
      ...(row ? [{ name: this.isRocketmq ? "Broker" : "Primary", value: row.node }] : []),
      ...detail.facts.map((each) => ({ name: each.name, value: each.value ?? used(each, each.name.startsWith("Bytes") ? bytes : count) })),
    ];
    this.facts.hidden = facts.length === 0;
    this.facts.replaceChildren(...facts.map((each) => h("div", {}, h("dt", {}, each.name), h("dd", {}, each.value))));
    this.flow.update(detail.history);
    this.backlog.update(detail.history);
    this.drawCauses(detail.causes);
    const parts = detail.parts.map((each) => rowOf(columns, each));
    this.partsSection.hidden = parts.length === 0;
    this.parts.update(parts);
    if (!this.isRocketmq) this.messages.apps(parts.map((each) => each.part));
    this.consumers.update(detail.consumers);
  }

  drawCauses(causes) {
    const key = JSON.stringify(causes);
    if (key === this.known) return;
    this.known = key;
    this.causes.hidden = false;
    this.causes.replaceChildren(
      h("h2", { id: "causes" }, causes.length ? "Why messages wait" : "No message waits"),
      causes.length
        ? h("ul", { class: "causes" }, causes.map((each) => h("li", {}, h("b", {}, each.cause), `: ${each.text}`, h("p", { class: "remedy" }, each.remedy))))
        : h("p", { class: "muted" }, "Consumers have taken what was posted."),
    );
  }
}
