// The messages of a queue or a topic, a page at a time.

import { get } from "../api.js";
import { h, bytes, count } from "../dom.js";
import { Table } from "../table.js";

const PAGE = 25;

export class Messages {
  // `parts` are the apps whose messages can be listed alone.
  // At RocketMQ they are those of one queue of the topic, which the server names.
  constructor(name, isRocketmq) {
    this.name = name;
    this.isRocketmq = isRocketmq;
    this.offset = 0;
    this.total = 0;
    this.part = h("select", { id: "messages-part", onchange: () => this.move(0) }, isRocketmq ? [] : h("option", { value: "" }, "all"));
    this.partLabel = h("label", { for: "messages-part", hidden: true }, isRocketmq ? "Queue " : "Of app ", this.part);
    this.where = h("span", { class: "muted", role: "status" });
    this.first = this.button("Oldest", () => 0);
    this.before = this.button("Older", () => Math.max(0, this.offset - PAGE));
    this.after = this.button("Newer", () => this.offset + PAGE);
    this.last = this.button("Newest", () => Math.max(0, this.total - PAGE));
    this.fault = h("p", { class: "fault-line", role: "status" });
    this.table = new Table({
      caption: "Messages",
      key: (row) => row.id,
      empty: "No messages.",
      columns: [
        { key: "where", label: isRocketmq ? "Offset" : "Number", text: (row) => row.where },
        { key: "id", label: "Message", text: (row) => row.id, cell: (row) => h("a", { class: "mono", href: `#/message/${encodeURIComponent(name)}/${encodeURIComponent(row.id)}` }, row.id) },
        { key: "stored_at", label: "Stored", isWhole: true, text: (row) => time(row.stored_at) },
        { key: "size", label: "Size", isNumber: true, text: (row) => bytes(row.size) },
        ...(isRocketmq ? [{ key: "note", label: "Tag and keys", text: (row) => row.note }] : []),
      ],
    });
    this.element = h("section", {},
      h("div", { class: "head-line" }, h("h2", {}, "Messages"), h("div", { class: "tools" }, this.partLabel, this.where, this.first, this.before, this.after, this.last, h("button", { type: "button", onclick: () => this.load() }, "Refresh"))),
      this.fault, this.table.element);
    this.load();
  }

  button(label, offset) {
    return h("button", { type: "button", onclick: () => this.move(offset()) }, label);
  }

  move(offset) {
    this.offset = offset;
    return this.load();
  }

  apps(names) {
    const key = names.join("\n");
    if (key === this.known) return;
    this.known = key;
    this.partLabel.hidden = names.length === 0;
    const chosen = this.part.value;
    this.part.replaceChildren(...(this.isRocketmq ? [] : [h("option", { value: "" }, "all")]), ...names.map((name) => h("option", { value: name }, name)));
    this.part.value = names.includes(chosen) ? chosen : "";
  }

  async load() {
    try {
      const found = await get("/api/ask/messages", { name: this.name, part: this.part.value, offset: this.offset, count: PAGE });
      if (this.isRocketmq) {
        this.apps(found.parts);
        this.part.value = found.part;
      }
      this.total = found.total;
      this.offset = found.offset;
      this.table.update(found.messages);
      const end = found.offset + found.messages.length;
      this.where.textContent = found.messages.length ? `${count(found.offset + 1)} to ${count(end)} of ${count(found.total)}` : "";
      this.fault.textContent = "";
    } catch (fault) {
      this.fault.textContent = fault.message;
    }
    this.first.disabled = this.before.disabled = this.offset === 0;
    this.after.disabled = this.last.disabled = this.offset + PAGE >= this.total;
  }
}

export function time(text) {
  const found = new Date(text);
  return Number.isNaN(found.getTime()) ? text : `${found.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
