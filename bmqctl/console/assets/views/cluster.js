// The map of the cluster: problems, totals, nodes, and the shards with their copies.

import { Chart } from "../chart.js";
import { h, count, plural, rate, scrollable, NOT_YET } from "../dom.js";
import { rowOf } from "../rows.js";
import { Table } from "../table.js";

export class ClusterView {
  constructor() {
    this.title = h("h1", { tabindex: "-1" }, "Cluster");
    this.problems = h("section", { class: "problems", "aria-label": "Problems", hidden: true });
    this.facts = h("dl", { class: "facts card", hidden: true });
    this.flow = new Chart("Messages per second", [
      { key: "rate_in", label: "in", class: "first" },
      { key: "rate_out", label: "out", class: "second" },
    ], rate);
    this.backlog = new Chart("Backlog", [{ key: "backlog", label: "messages", class: "third" }], count);
    this.nodes = new Table({
      caption: "Nodes",
      key: (row) => `${row.name} ${row.address}`,
      columns: [
        { key: "name", label: "Node", text: (row) => row.name },
        { key: "address", label: "Address", isWhole: true, text: (row) => row.address },
        { key: "role", label: "Role", isWhole: true, text: (row) => row.role },
        { key: "state", label: "State", text: (row) => `${row.state}${row.text ? `: ${row.text}` : ""}`, cell: (row) => state(row.is_well, row.text ? `${row.state}: ${row.text}` : row.state) },
      ],
    });
    this.map = scrollable(h("div", { class: "table-card card" }, h("p", { class: "muted rest" }, `Map: ${NOT_YET}`)), "Map of the cluster");
    this.mapHead = h("h2", {}, "Map");
    this.element = h("div", { class: "view" }, this.title, this.problems, this.facts,
      h("div", { class: "charts" }, this.flow.element, this.backlog.element),
      this.mapHead, this.map, h("h2", {}, "Nodes"), this.nodes.element);
  }

  update(overview, session) {
    const { map } = overview;
    const total = rowOf(overview.columns, overview.total);
    this.title.textContent = `Cluster ${map.name}`;
    this.drawProblems(map.problems);
    const word = session.system === "RocketMQ" ? "Topics" : "Queues";
    const facts = [
      ...map.facts,
      { name: word, value: count(overview.rows.length) },
      { name: "Backlog", value: count(total.backlog) },
      { name: "In per second", value: rate(total.rate_in) },
      { name: "Out per second", value: rate(total.rate_out) },
    ];
    this.facts.hidden = false;
    this.facts.replaceChildren(...facts.map((each) => h("div", {}, h("dt", {}, each.name), h("dd", {}, each.value))));
    this.flow.update(overview.history);
    this.backlog.update(overview.history);
    this.nodes.update(map.nodes);
    this.drawMap(map);
  }

  drawProblems(problems) {
    const key = JSON.stringify(problems);
    if (key === this.known) return;
    this.known = key;
    this.problems.hidden = problems.length === 0;
    this.problems.replaceChildren(
      h("h2", {}, plural(problems.length, "problem")),
      h("ul", {}, problems.map((each) => h("li", {}, h("span", {}, each.text), each.by.length ? h("span", { class: "muted" }, ` (seen by ${each.by.join(", ")})`) : null, each.remedy ? h("p", { class: "remedy" }, each.remedy) : null))),
    );
  }

  drawMap(map) {
    const key = JSON.stringify([map.columns, map.shards]);
    if (key === this.knownMap) return;
    this.knownMap = key;
    const heads = [map.shard_word, "Primary", ...map.columns, "State"];
    const lines = map.shards.map((shard) =>
      h("tr", {},
        h("th", { scope: "row" }, shard.name),
        h("td", {}, shard.primary ?? "none"),
        shard.copies.map((copy) => h("td", {}, copy.role ? copyChip(copy) : "")),
        h("td", {}, state(shard.is_well, shard.is_well ? shard.text || "well" : shard.text || "not available"))));
    this.map.replaceChildren(
      h("table", { class: "map" },
        h("caption", { class: "offscreen" }, `Map of the cluster: each ${map.shard_word.toLowerCase()} with its copies`),
        h("thead", {}, h("tr", {}, heads.map((each) => h("th", { scope: "col" }, each)))),
        h("tbody", {}, lines)));
  }
}

function state(isWell, text) {
  return h("span", { class: isWell ? "state well" : "state ill" }, h("span", { class: "mark", "aria-hidden": "true" }, isWell ? "●" : "▲"), text);
}

function copyChip(copy) {
  const tone = !copy.is_well ? "ill" : copy.behind ? "late" : "well";
  return h("span", { class: `chip ${copy.role} ${tone}` }, h("b", {}, copy.role), h("span", {}, copy.state));
}
