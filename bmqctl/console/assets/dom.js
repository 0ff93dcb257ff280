// Elements, and numbers and times as people read them. Texts of brokers and messages become text nodes only.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

// Have an element that does not show all of its width scrolled by the keyboard, too, for as long as that is so.
export function scrollable(element, label) {
  const observer = new ResizeObserver(() => {
    const isCut = element.scrollWidth > element.clientWidth + 1;
    if (isCut === element.hasAttribute("tabindex")) return;
    const words = { tabindex: "0", role: "group", "aria-label": label };
    for (const [name, value] of Object.entries(words)) {
      if (isCut) element.setAttribute(name, value);
      else element.removeAttribute(name);
    }
  });
  const observe = () => [element, ...element.children].forEach((each) => observer.observe(each));
  new MutationObserver(observe).observe(element, { childList: true });
  observe();
  return element;
}

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const UNKNOWN = "–";
// What stands where an answer is still awaited, or did not come.
export const NOT_YET = "nothing is known yet.";

export function count(value) {
  return value === null || value === undefined ? UNKNOWN : grouped.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value >= 10 || value === 0 ? grouped.format(value) : precise.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value < 1024) return `${grouped.format(value)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let number = value;
  let unit = -1;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${number < 10 ? precise.format(number) : grouped.format(number)} ${units[unit]}`;
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 60) return `${precise.format(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function short(value) {
  if (value < 1000) return Number.isInteger(value) ? String(value) : precise.format(value);
  const units = ["k", "M", "G", "T"];
  let number = value;
  let unit = -1;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${Number.isInteger(number) || number >= 100 ? Math.round(number) : number.toFixed(1)}${units[unit]}`;
}

// How much of a limit is used, as the parts of an element.
export function used(room, write) {
  return room.limit === null ? [write(room.used)] : [write(room.used), " ", h("small", {}, `of ${write(room.limit)}`)];
}

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

export function announce(text) {
  document.getElementById("live").textContent = text;
}

export function note(text, isBad = false) {
  const line = h("div", { class: isBad ? "note bad" : "note" }, text);
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Close the message" }, "×");
  close.addEventListener("click", () => line.remove());
  line.append(close);
  document.getElementById("notes").append(line);
  if (!isBad) setTimeout(() => line.remove(), 12000);
}
