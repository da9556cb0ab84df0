// Logs, tasks and users.

import { confirm, fill, h, say } from "./dom.js";
import { get, post } from "./api.js";
import { ago, span, t } from "./words.js";

export class Logs {
  constructor() {
    this.server = h("select", { "aria-label": t("Server"), onchange: () => (location.hash = `#/logs/${encodeURIComponent(this.server.value)}`) });
    this.words = h("input", { type: "search", placeholder: t("Filter"), "aria-label": t("Filter"), oninput: () => this.draw() });
    this.view = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": t("Standard error") });
    this.node = h("section", null, h("h1", null, t("Logs")), h("div", { class: "filters" }, this.server, this.words), this.view);
    this.lines = [];
    this.timer = setInterval(() => document.hidden || this.read(), 2000);
  }

  leave() {
    clearInterval(this.timer);
  }

  news() {
    return false;
  }

  async load(words) {
    const { servers } = await get("fleet");
    const names = servers.filter((one) => one.transport === "stdio").map((one) => one.name);
    const wanted = words?.[0] ?? (this.server.value || names[0]);
    fill(this.server, names.map((one) => h("option", { value: one, selected: one === wanted }, one)));
    await this.read();
  }

  async read() {
    if (!this.server.value) return fill(this.view, t("No server of this kind."));
    try {
      this.lines = (await get(`servers/${encodeURIComponent(this.server.value)}/logs?lines=1000`)).lines;
    } catch (error) {
      this.lines = [error.message];
    }
    return this.draw();
  }

  draw() {
    const words = this.words.value.toLowerCase();
    const found = this.lines.filter((one) => one.toLowerCase().includes(words));
    const text = found.join("\n") || t("No output yet.");
    if (this.view.textContent === text) return;
    const { scrollTop, scrollHeight, clientHeight } = this.view;
    this.view.textContent = text;
    if (scrollTop + clientHeight >= scrollHeight - 40) this.view.scrollTop = this.view.scrollHeight;
  }
}

class Table {
  constructor(title, empty) {
    this.empty = empty;
    this.body = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title });
    this.node = h("section", null, h("h1", null, title), this.body);
  }

  news() {
    return true;
  }

  show(heads, rows) {
    if (!rows.length) return fill(this.body, h("p", { class: "dim" }, this.empty));
    return fill(this.body, h("table", null, h("thead", null, h("tr", null, heads.map((one) => h("th", { scope: "col" }, one)))), h("tbody", null, rows)));
  }
}

export class Tasks extends Table {
  constructor(about) {
    super(t("Tasks"), t("No server works on a task."));
    this.about = about;
  }

  async load() {
    const { tasks } = await get("tasks");
    this.show(
      [t("Tool"), t("Server"), t("State"), t("Began"), t("Says"), ""],
      tasks.map((one) =>
        h("tr", null, [one.tool, one.server, t(one.status), ago(one.created), one.message].map((text) => h("td", null, h("bdi", null, text))), h("td", null, this.about.read_only ? null : h("button", { type: "button", class: "small", onclick: () => this.cancel(one) }, t("Cancel")))),
      ),
    );
  }

  async cancel(one) {
    if (!(await confirm(t("Cancel this task?"), h("p", null, one.tool), t("Cancel the task"), t("Back")))) return;
    try {
      await post(`tasks/${encodeURIComponent(one.id)}/cancel`);
    } catch (error) {
      say(error.message, true);
    }
    await this.load();
  }
}

export class Users extends Table {
  constructor() {
    super(t("Users"), t("No user is connected."));
  }

  async load() {
    const { users } = await get("users");
    this.show(
      [t("User"), t("State"), t("Idle for")],
      users.map((one) => h("tr", null, [one.user, one.is_waiting ? t("waits") : one.is_open ? t("connected") : "—", one.idle === null ? "" : span(one.idle)].map((text) => h("td", null, h("bdi", null, text))))),
    );
  }
}
