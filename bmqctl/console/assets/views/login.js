// The form for a name and a password, which the node checks.

import { login } from "../api.js";
import { h } from "../dom.js";

export class LoginView {
  constructor(session, parameters, reason, done) {
    this.done = done;
    this.title = h("h1", { tabindex: "-1" }, "Log in");
    const isRocketmq = session.system === "RocketMQ";
    this.user = h("input", { id: "login-user", name: "user", autocomplete: "username", required: true, spellcheck: "false" });
    this.password = h("input", { id: "login-password", name: "password", type: "password", autocomplete: "current-password", required: true });
    this.fault = h("p", { class: "fault-line", role: "alert" });
    this.button = h("button", { type: "submit", class: "main" }, "Log in");
    this.form = h("form", { class: "card pad login", onsubmit: (event) => this.send(event) },
      h("p", { class: "muted" }, reason || `The nodes of ${session.place} decide what you may see and do.`),
      h("label", { for: "login-user" }, isRocketmq ? "Access key" : "User"), this.user,
      h("label", { for: "login-password" }, isRocketmq ? "Secret" : "Password"), this.password,
      this.fault, this.button);
    this.element = h("div", { class: "view" }, this.title, this.form);
  }

  async send(event) {
    event.preventDefault();
    this.button.disabled = true;
    this.fault.textContent = "";
    try {
      this.done(await login({ user: this.user.value, password: this.password.value }));
    } catch (fault) {
      this.fault.textContent = fault.message;
      this.password.select();
    } finally {
      this.button.disabled = false;
    }
  }

  update() {}
}
