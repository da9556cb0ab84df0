// Trust: changed definitions as a difference, and servers of a project that wait for an approval.

import { confirm, fill, h, say } from "./dom.js";
import { get, post } from "./api.js";
import { t } from "./words.js";

export class Trust {
  constructor(about) {
    this.about = about;
    this.body = h("div");
    this.node = h("section", null, h("h1", null, t("Trust")), this.body);
  }

  news(data) {
    return data.servers.length || data.reloaded;
  }

  async load() {
    const { changes, entries } = await get("trust");
    const waiting = entries.filter((one) => one.state !== "approved");
    const approved = entries.filter((one) => one.state === "approved");
    fill(
      this.body,
      h("h2", null, t("Changed definitions")),
      changes.length
        ? changes.map((one) => this.card(one, one.is_withheld ? t("withheld until you approve") : t("in use until you decide"), difference(one.texts), "changes"))
        : h("p", { class: "dim" }, t("Every server offers what was pinned.")),
      h("h2", null, t("Servers of this project")),
      waiting.length
        ? waiting.map((one) => this.card(one, one.state === "changed" ? t("changed since you approved it") : t("never approved"), h("pre", { tabindex: "0" }, one.text), "entry"))
        : h("p", { class: "dim" }, approved.length ? `${t("All approved")}: ${approved.map((one) => one.server).join(", ")}` : t("This project defines none.")),
    );
  }

  card(one, word, view, kind) {
    return h(
      "article",
      { class: "card warn" },
      h("div", { class: "top" }, h("h3", null, h("bdi", null, one.server)), h("span", { class: "state warn" }, word)),
      view,
      this.about.read_only ? null : h("div", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: () => this.approve(one, kind, view) }, `${t("Approve")} …`)),
    );
  }

  async approve(one, kind, view) {
    const title = kind === "entry" ? t("Start this server from now on?") : t("Pin these definitions?");
    if (!(await confirm(title, h("div", null, h("p", null, one.server), view.cloneNode(true)), t("Approve"), t("Cancel")))) return;
    try {
      const found = await post(`trust/${encodeURIComponent(one.server)}/${kind}`, { fingerprint: one.fingerprint });
      say(`${one.server}: ${t("approved")}, ${t(found.state)}`);
    } catch (error) {
      say(`${one.server}: ${error.message}`, true);
    }
    await this.load();
  }
}

const difference = (lines) =>
  h(
    "pre",
    { class: "difference", tabindex: "0" },
    lines.flatMap((one) => one.split("\n")).map((line) => {
      const mark = line.trim()[0];
      return h("span", { class: mark === "+" ? "added" : mark === "-" ? "removed" : "" }, `${line}\n`);
    }),
  );
