// Actions that destroy or change something: a dialogue says what will happen, and only its button does it.

import { post } from "./api.js";
import { h, note } from "./dom.js";

// Ask the server what an action would do, ask the person, and do it. Returns true if it was done.
export async function confirmAndAct(action, words) {
  let plan;
  try {
    plan = await post(`/api/plan/${action}`, words);
  } catch (fault) {
    note(fault.message, true);
    return false;
  }
  if (!(await confirm(plan))) return false;
  try {
    note((await post(`/api/act/${action}`, words)).done);
    return true;
  } catch (fault) {
    note(fault.message, true);
    return false;
  }
}

// Ask from where a group is to continue, then as above.
export async function resetOffsets(topic, group) {
  const dialog = document.getElementById("dialog");
  const time = h("input", { type: "datetime-local", id: "reset-time", step: "1", "aria-label": "Time, in UTC" });
  const choice = (value, ...label) => h("p", {}, h("input", { type: "radio", name: "to", id: `to-${value}`, value, required: true }), h("label", { for: `to-${value}` }, " ", ...label));
  const cancel = h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel");
  const form = h("form", {},
    h("h2", { id: "dialog-title" }, `From where is group ${group} to continue?`),
    h("p", { id: "dialog-text" }, `This concerns topic ${topic}. What will happen is shown before it is done.`),
    h("fieldset", { class: "plain" }, h("legend", { class: "offscreen" }, "Continue from"),
      choice("begin", "the oldest stored message"), choice("end", "the end, skipping all that is stored"),
      choice("time", "the first message stored at this time, in UTC: "), time),
    h("div", { class: "buttons" }, cancel, h("button", { type: "submit", class: "main" }, "Continue…")));
  time.addEventListener("focus", () => { form.querySelector("#to-time").checked = true; });
  const to = await new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const chosen = form.querySelector("input[name=to]:checked").value;
      if (chosen === "time" && !time.value) time.focus();
      else dialog.close(chosen === "time" ? `${time.value}Z` : chosen);
    });
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.replaceChildren(form);
    dialog.returnValue = "";
    dialog.showModal();
    form.querySelector("#to-begin").focus();
  });
  return to ? confirmAndAct("reset", { name: topic, part: group, to }) : false;
}

function confirm(plan) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    const cancel = h("button", { type: "button", autofocus: true, onclick: () => dialog.close("no") }, "Cancel");
    const go = h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, plan.label);
    dialog.replaceChildren(
      h("h2", { id: "dialog-title" }, plan.title),
      h("p", { id: "dialog-text" }, plan.text),
      h("div", { class: "buttons" }, cancel, go),
    );
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
    cancel.focus();
  });
}
