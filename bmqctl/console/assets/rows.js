// The rows of queues or topics, and the columns that tables show of them.

import { h, age, count, rate } from "./dom.js";

export function rowsOf(overview) {
  return overview.rows.map((values) => rowOf(overview.columns, values));
}

export function rowOf(columns, values) {
  return Object.fromEntries(columns.map((name, index) => [name, values[index]]));
}

export function link(name) {
  return `#/queue/${encodeURIComponent(name)}`;
}

// A queue's name without what all names have in common.
export function shown(name) {
  return name.replace(/^bmq:\/\//, "");
}

// A name that may be broken between its parts.
export function broken(name) {
  if (name.length < 24) return name;
  return name.split(/(?<=[./])/).flatMap((part, index) => (index === 0 ? [part] : [h("wbr"), part]));
}

export const NUMBERS = [
  { key: "rate_in", label: "In/s", isNumber: true, text: (row) => rate(row.rate_in) },
  { key: "rate_out", label: "Out/s", isNumber: true, text: (row) => rate(row.rate_out) },
  { key: "backlog", label: "Backlog", isNumber: true, text: (row) => count(row.backlog), tone: (row) => (row.backlog ? "strong" : "") },
  { key: "oldest_s", label: "Oldest", isNumber: true, width: "minmax(112px, 1fr)", text: (row) => age(row.oldest_s) },
  { key: "consumers", label: "Consumers", isNumber: true, width: "minmax(118px, 1fr)", text: (row) => count(row.consumers), tone: (row) => (row.consumers === 0 && row.backlog ? "warn" : "") },
];

export const LAG = { key: "lag", label: "Replicas behind", isNumber: true, width: "minmax(166px, 1fr)", text: (row) => count(row.lag), tone: (row) => (row.lag ? "warn" : "") };

export const NAME = {
  key: "name",
  label: "Queue",
  width: "minmax(240px, 5fr)",
  text: (row) => row.name,
  cell: (row) => h("a", { href: link(row.name) }, broken(shown(row.name))),
};

export const NODE = { key: "node", label: "Node", isWhole: true, text: (row) => row.node };
