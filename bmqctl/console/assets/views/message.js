// One message: where it is, its properties, and its payload in each form that it has.

import { get, post } from "../api.js";
import { h, bytes } from "../dom.js";
import { link, shown } from "../rows.js";
import { Table } from "../table.js";
import { time } from "./messages.js";

export class MessageView {
  constructor(session, parameters, path) {
    // The name may have slashes, the id has none.
    const at = path.lastIndexOf("/");
    this.name = decodeURIComponent(path.slice(0, at));
    this.id = decodeURIComponent(path.slice(at + 1));
    this.path = h("p", { class: "path" }, h("a", { href: "#/queues" }, session.system === "RocketMQ" ? "Topics" : "Queues"), " / ", h("a", { href: link(this.name) }, shown(this.name)));
    this.title = h("h1", { tabindex: "-1", class: "mono" }, this.id);
    this.fault = h("p", { class: "fault-line", role: "alert" });
    this.facts = h("dl", { class: "facts small card", hidden: true });
    this.properties = new Table({
      caption: "Properties",
      key: (row) => row.name,
      empty: "The message has no properties.",
      columns: [
        { key: "name", label: "Property", text: (row) => row.name },
        { key: "type", label: "Type", text: (row) => row.type },
        { key: "value", label: "Value", text: (row) => row.value },
      ],
    });
    this.payload = h("section", { class: "card pad", "aria-labelledby": "payload", hidden: true });
    this.element = h("div", { class: "view" }, this.path, this.title, this.fault, this.facts, this.payload, h("h2", {}, "Properties"), this.properties.element);
    this.load();
  }

  update() {}

  async load() {
    let found;
    try {
      found = await get("/api/ask/message", { name: this.name, id: this.id });
    } catch (fault) {
      this.fault.textContent = fault.message;
      return;
    }
    this.fault.textContent = found.fault ?? "";
    this.facts.hidden = false;
    this.facts.replaceChildren(...found.facts.map((each) => h("div", {}, h("dt", {}, each.name), h("dd", {}, each.name === "Stored" || each.name === "Born" ? time(each.value) : each.value))));
    this.properties.update(found.properties);
    this.drawPayload(found);
  }

  drawPayload(found) {
    this.base64 = found.base64;
    this.text = h("pre", { class: "code", tabindex: "0", id: "payload-text", "aria-live": "polite" });
    this.cut = h("p", { class: "muted" });
    const forms = [...found.forms];
    if (!forms.some((each) => each.name === "Avro")) forms.splice(forms.length - 1, 0, { name: "Avro", needsSchema: true });
    this.schema = h("textarea", { id: "schema", rows: "5", spellcheck: "false", placeholder: '{"type": "record", "name": ...}' });
    this.schema.value = sessionStorage.getItem(`schema ${this.name}`) ?? "";
    this.ask = h("form", { class: "schema", hidden: true, onsubmit: (event) => this.decode(event) },
      h("label", { for: "schema" }, "The writer's schema, as JSON; empty for an object container file, which has its own"), this.schema,
      h("button", { type: "submit", class: "main" }, "Decode"));
    const choices = forms.map((form, index) => {
      const radio = h("input", { type: "radio", name: "form", id: `form-${index}`, onchange: () => this.showForm(form) });
      radio.checked = index === 0;
      return h("span", { class: "choice" }, radio, h("label", { for: `form-${index}` }, form.name));
    });
    this.payload.hidden = false;
    this.payload.replaceChildren(
      h("div", { class: "head-line" }, h("h2", { id: "payload" }, `Payload, ${bytes(found.size)}`),
        h("fieldset", { class: "choices" }, h("legend", { class: "offscreen" }, "Form of the payload"), choices)),
      this.ask, this.text, this.cut);
    this.showForm(forms[0]);
  }

  showForm(form) {
    this.ask.hidden = form.name !== "Avro";
    this.text.textContent = form.text ?? "";
    this.text.hidden = form.name === "Avro" || !form.text;
    this.cut.textContent = form.is_cut ? "There is more: only the beginning is shown." : form.text === "" ? "The payload is empty." : "";
    if (form.name === "Avro" && !form.needsSchema) this.decode();
  }

  async decode(event) {
    event?.preventDefault();
    sessionStorage.setItem(`schema ${this.name}`, this.schema.value);
    this.cut.textContent = "Decoding…";
    try {
      const found = await post("/api/decode", { schema: this.schema.value, payload: this.base64 });
      this.text.hidden = false;
      this.text.textContent = found.text;
      this.cut.textContent = "";
    } catch (fault) {
      this.text.hidden = true;
      this.cut.textContent = fault.message;
    }
  }
}
