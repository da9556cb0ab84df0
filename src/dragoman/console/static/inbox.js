// The inbox: calls that wait for a yes, with their arguments, the rule that asks, and the rules that "always" writes.

import { confirm, fill, h, keyed, say } from "./dom.js";
import { get, post } from "./api.js";
import { parse } from "./json.js";
import { tree } from "./result.js";
import { ago, span, t } from "./words.js";

const AGAIN_SECONDS = 5;
const COVERS = { tool: "this tool", arguments: "this tool with these arguments", server: "every tool of this server" };

export class Inbox {
  constructor(about) {
    this.about = about;
    this.list = h("ul", { class: "cards" });
    this.node = h("section", null, h("h1", null, t("Inbox")), h("p", { class: "dim" }, t("Calls that a rule asks about wait here, also those of your other programs.")), this.list);
    // Entries of other programs are in the same file, and no event tells of them.
    this.timer = setInterval(() => document.hidden || this.load().catch(() => {}), AGAIN_SECONDS * 1000);
    this.ticker = setInterval(() => this.tick(), 1000);
  }

  leave() {
    clearInterval(this.timer);
    clearInterval(this.ticker);
  }

  news(data) {
    return data.inbox;
  }

  async load() {
    const { pending, at } = await get("inbox");
    this.late = Date.now() / 1000 - (at ?? 0);
    window.dispatchEvent(new CustomEvent("waiting", { detail: pending.length }));
    if (!pending.length) return fill(this.list, h("li", { class: "card off" }, t("Nothing waits for you.")));
    this.list.querySelector(":scope > :not([data-key])")?.remove();
    keyed(this.list, pending, (one) => one.id, (one) => this.card(one));
    this.tick();
  }

  tick() {
    const now = Date.now() / 1000 - (this.late ?? 0);
    for (const node of this.list.querySelectorAll("[data-until]")) node.textContent = t("{0} left", span(Math.max(0, Number(node.dataset.until) - now)));
  }

  card(one) {
    const who = [one.caller.user, one.caller.principal, one.caller.client, one.caller.program && `${one.caller.program} (${one.caller.process})`].filter(Boolean).join(" · ");
    const choose = (allow, always, word) => h("button", { type: "button", class: allow && !always ? "main" : "", "data-focus": word + (always?.covers ?? ""), onclick: () => this.answer(one, allow, always) }, t(word), always ? ` ${t(COVERS[always.covers])}` : "");
    return h(
      "li",
      { class: "card warn" },
      h("div", { class: "top" }, h("h2", null, h("span", { class: "mark warn", "aria-hidden": "true" }, "?"), " ", h("bdi", null, one.tool)), h("span", { class: "state warn" }, t(one.kind)), h("span", { class: "dim" }, `${one.server} · ${ago(one.asked_at)} · `, h("span", { "data-until": one.expires_at }))),
      h("p", { class: "dim" }, `${t("Asked by")} `, h("bdi", null, who || t("this program"))),
      h("p", null, h("b", null, `${t("Why")}: `), h("bdi", null, [one.reason, one.rule, one.source].filter(Boolean).join(" · ") || t("a rule asks"))),
      h("div", { class: "tree" }, tree(parse(one.arguments_json), "", true)),
      this.about.read_only
        ? null
        : h("div", { class: "buttons" }, this.about.is_operator ? choose(true, null, "Allow once") : null, choose(false, null, "Deny"), one.always.map((rule) => choose(true, rule, "Always allow"))),
    );
  }

  async answer(one, allow, always) {
    const body = [
      h("p", null, h("bdi", null, one.tool)),
      always ? [h("p", null, `${t("This rule is written to")} `, h("code", null, always.file), ":"), h("pre", { tabindex: "0" }, always.text)] : h("div", { class: "tree" }, tree(parse(one.arguments_json), "", true)),
    ];
    const title = allow ? (always ? t("Write this rule and allow the call?") : t("Allow this call once?")) : t("Deny this call?");
    if (!(await confirm(title, h("div", null, body), allow ? t("Allow") : t("Deny"), t("Cancel")))) return;
    try {
      const found = await post(`inbox/${encodeURIComponent(one.id)}`, { allow, always: always?.covers ?? null });
      say(`${one.tool}: ${t(found.state)}`);
    } catch (error) {
      say(error.message, true);
    }
    await this.load();
  }
}
