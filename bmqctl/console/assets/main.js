// The console's frame: which view is shown, and the loop that keeps it up to date.

import { get, logout, session as askSession } from "./api.js";
import { h, announce, plural } from "./dom.js";
import { ClusterView } from "./views/cluster.js";
import { DomainView, DomainsView } from "./views/domains.js";
import { LoginView } from "./views/login.js";
import { MessageView } from "./views/message.js";
import { QueueView } from "./views/queue.js";
import { QueuesView } from "./views/queues.js";

const RETRY_MS = 3000;

const SECTIONS = {
  BlazingMQ: [["cluster", "Cluster"], ["queues", "Queues"], ["domains", "Domains"]],
  RocketMQ: [["cluster", "Cluster"], ["queues", "Topics"]],
};
const VIEWS = { cluster: ClusterView, queues: QueuesView, queue: QueueView, domains: DomainsView, domain: DomainView, message: MessageView };
// The section that a view belongs to.
const WITHIN = { queue: "queues", message: "queues", domain: "domains" };

const byId = (id) => document.getElementById(id);

class Console {
  constructor(session) {
    this.session = session;
    this.view = null;
    this.overview = null;
    this.isPaused = false;
    this.health = null;
    this.run = 0;
  }

  start() {
    byId("place").textContent = this.session.place;
    byId("pause").addEventListener("click", () => this.pause());
    window.addEventListener("hashchange", () => this.show(true));
    document.addEventListener("visibilitychange", () => this.go());
    document.addEventListener("keydown", (event) => this.key(event));
    this.entered(this.session);
    this.show(false);
    this.go();
  }

  entered(session) {
    this.session = session;
    const user = byId("user");
    if (session.user === null) user.replaceChildren(h("a", { href: "#/login" }, "Log in"));
    else {
      user.replaceChildren(
        h("span", { class: "muted" }, session.user),
        h("button", { type: "button", class: "quiet", onclick: () => this.leave() }, "Log out"),
      );
    }
    byId("nav").replaceChildren(...SECTIONS[session.system].map(([name, label]) => h("a", { href: `#/${name}`, id: `nav-${name}` }, label)));
  }

  async leave() {
    this.overview = null;
    this.entered(await logout());
    this.show(true);
    this.go();
  }

  show(isMoved) {
    const [path, query] = (location.hash.replace(/^#\/?/, "") || "cluster").split("?");
    const [name, ...rest] = path.split("/");
    const parameters = new URLSearchParams(query ?? "");
    if (name === "login") {
      this.askForLogin("");
      return;
    }
    const View = VIEWS[name] ?? ClusterView;
    this.put(new View(this.session, parameters, name === "message" ? rest.join("/") : decodeURIComponent(rest.join("/"))), isMoved);
    this.mark(WITHIN[name] ?? name);
  }

  mark(section) {
    for (const each of byId("nav").children) {
      if (each.id === `nav-${section}`) each.setAttribute("aria-current", "page");
      else each.removeAttribute("aria-current");
    }
  }

  put(view, isMoved) {
    this.view = view;
    byId("main").replaceChildren(view.element);
    if (this.overview) {
      view.update(this.overview, this.session);
      this.tellFaults();
    }
    document.title = `${view.title.textContent} – bmqctl console`;
    window.scrollTo(0, 0);
    if (isMoved) view.title.focus({ preventScroll: true });
  }

  askForLogin(reason) {
    if (this.view instanceof LoginView) return;
    this.mark(null);
    this.put(new LoginView(this.session, null, reason, (session) => {
      this.overview = null;
      this.entered(session);
      if (location.hash.startsWith("#/login")) location.hash = "#/cluster";
      else this.show(true);
      this.go();
    }), true);
  }

  async go() {
    this.run += 1;
    const own = this.run;
    while (own === this.run && !document.hidden && !this.isPaused) {
      try {
        const overview = await get("/api/overview", { after: this.overview?.number ?? 0 });
        if (own !== this.run) return;
        this.take(overview);
      } catch (fault) {
        if (own !== this.run) return;
        if (fault.status === 401) {
          this.askForLogin(fault.message);
          return;
        }
        if (fault.status === 403) this.entered(await askSession().catch(() => this.session));
        this.tell(fault.message);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  take(overview) {
    this.overview = overview;
    this.tellFaults();
    this.drawHealth(overview.map.problems.length);
    if (!(this.view instanceof LoginView)) this.view.update(overview, this.session);
  }

  // What nodes do not tell; the cluster's page has it among the problems.
  tellFaults() {
    const { faults, map } = this.overview;
    this.tell(this.view instanceof ClusterView && map.problems.length ? "" : faults.join("\n"));
  }

  tell(text) {
    const line = byId("fault");
    if (line.textContent === text) return;
    line.textContent = text;
    line.hidden = text === "";
  }

  drawHealth(problems) {
    if (problems === this.health) return;
    const pill = byId("health");
    pill.className = problems ? "pill ill" : "pill well";
    pill.textContent = problems ? plural(problems, "problem") : "Healthy";
    if (this.health !== null) announce(problems ? `The cluster has ${plural(problems, "problem")}` : "The cluster is healthy");
    this.health = problems;
  }

  pause() {
    this.isPaused = !this.isPaused;
    byId("pause").setAttribute("aria-pressed", String(this.isPaused));
    byId("pause").textContent = this.isPaused ? "Paused" : "Pause";
    this.go();
  }

  key(event) {
    const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || byId("dialog").open) return;
    if (event.key === "/") {
      event.preventDefault();
      if (!byId("search")) location.hash = "#/queues";
      setTimeout(() => byId("search")?.focus(), 0);
    }
  }
}

function followTheme() {
  const kept = localStorage.getItem("theme");
  const choices = ["auto", "light", "dark"];
  let at = Math.max(0, choices.indexOf(kept));
  const apply = () => {
    if (choices[at] === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", choices[at]);
    byId("theme").textContent = `Theme: ${choices[at]}`;
  };
  byId("theme").addEventListener("click", () => {
    at = (at + 1) % choices.length;
    localStorage.setItem("theme", choices[at]);
    apply();
  });
  apply();
}

followTheme();
try {
  new Console(await askSession()).start();
} catch (fault) {
  byId("main").replaceChildren(h("p", { class: "fault-line", role: "alert" }, fault.message));
}
