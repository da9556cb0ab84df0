// The calls: a live list with filters, and one call with its arguments and its answer as they were logged.

import { Rows, fill, h, soon } from "./dom.js";
import { get } from "./api.js";
import { parse } from "./json.js";
import { tree } from "./result.js";
import { repeat } from "./tools.js";
import { clock, count, seconds, stamp, t } from "./words.js";

const PAGE = 500;

export class Calls {
  constructor(about) {
    this.about = about;
    this.calls = [];
    this.byId = new Map();
    this.more = false;
    this.loading = false;
    this.number = 0;
    const again = soon(() => this.load(), 250);
    const field = (name, label) => h("input", { type: "search", name, placeholder: t(label), "aria-label": t(label), "data-focus": name, oninput: again });
    this.inputs = { server: field("server", "Server"), tool: field("tool", "Tool"), text: field("text", "Text") };
    this.errors = h("input", { type: "checkbox", onchange: again });
    this.note = h("p", { class: "dim", role: "status" });
    this.rows = new Rows({
      label: t("Calls"),
      height: 34,
      key: (one) => one.call_id,
      make: (one) => this.row(one),
      choose: (one) => (location.hash = `#/calls/${encodeURIComponent(one.call_id)}`),
    });
    this.rows.onend = () => this.next();
    this.detail = h("div", { class: "detail" }, h("p", { class: "dim" }, t("Choose a call to see it whole.")));
    this.node = h(
      "section",
      { class: "split wide" },
      h(
        "div",
        { class: "master" },
        h("h1", null, t("Calls")),
        h("div", { class: "filters" }, Object.values(this.inputs), h("label", { class: "check" }, this.errors, t("errors only"))),
        this.note,
        this.rows.node,
      ),
      this.detail,
    );
  }

  query(before = "") {
    const pattern = (value) => (value && !/[*?[]/.test(value) ? `*${value}*` : value);
    const found = new URLSearchParams({ limit: String(PAGE) });
    for (const name of ["server", "tool"]) if (this.inputs[name].value) found.set(name, pattern(this.inputs[name].value));
    if (this.inputs.text.value) found.set("text", this.inputs.text.value);
    if (this.errors.checked) found.set("errors", "1");
    if (before) found.set("before", before);
    return `calls?${found}`;
  }

  async load(words) {
    const number = (this.number += 1);
    const found = await get(this.query());
    if (number !== this.number) return;
    this.calls = found.calls;
    this.byId = new Map(found.calls.map((one) => [one.call_id, one]));
    this.more = found.more;
    this.logged = found.logged;
    this.draw();
    if (words?.[0]) await this.show(words[0]);
    else if (words) this.node.classList.remove("chosen");
  }

  async next() {
    if (!this.more || this.loading) return;
    this.loading = true;
    const last = this.calls.findLast((one) => one.number);
    try {
      const found = await get(this.query(`${last.at},${last.number}`));
      for (const one of found.calls)
        if (!this.byId.has(one.call_id)) {
          this.byId.set(one.call_id, one);
          this.calls.push(one);
        }
      this.more = found.more;
      this.draw();
    } finally {
      this.loading = false;
    }
  }

  /** Take the calls of an event into the list. */
  news(data) {
    let added = 0;
    const fits = this.filter();
    for (const one of data.calls) {
      const known = this.byId.get(one.call_id);
      if (known) Object.assign(known, one);
      else if (fits(one)) {
        this.byId.set(one.call_id, one);
        this.calls.unshift(one);
        added += 1;
      }
    }
    if (data.calls.length) this.draw(added);
    return false;
  }

  filter() {
    const { server, tool, text } = Object.fromEntries(Object.entries(this.inputs).map(([name, one]) => [name, one.value.toLowerCase()]));
    const has = (value, words) => !words || value.toLowerCase().includes(words.replace(/[*?[\]]/g, ""));
    return (one) =>
      has(one.server, server) && has(one.tool, tool) && (!text || has(`${one.tool} ${one.arguments}`, text)) && (!this.errors.checked || one.error_code);
  }

  draw(added = 0) {
    fill(this.note, `${count(this.calls.length)}${this.more ? "+" : ""} ${t("calls")}`, this.logged ? "" : ` · ${t("not logged: only those since this page")}`);
    this.rows.show(this.calls, { keep: added });
  }

  row(one) {
    const tone = one.duration === null ? "warn" : one.error_code ? "bad" : "good";
    return h(
      "div",
      { class: "call" },
      h("time", { class: "dim" }, clock(one.at)),
      h("span", { class: `outcome ${tone}` }, one.duration === null ? `… ${t("running")}` : one.error_code ? `✗ ${one.error_code}` : `✓ ${t("ok")}`),
      h("bdi", { class: "name" }, one.tool),
      h("bdi", { class: "dim args" }, one.arguments),
      h("span", { class: "number" }, one.duration === null ? "" : seconds(one.duration)),
    );
  }

  async show(id) {
    this.node.classList.add("chosen");
    this.rows.chosen = id;
    this.rows.show(this.rows.items);
    try {
      fill(this.detail, this.view(await get(`calls/${encodeURIComponent(id)}`)));
    } catch (error) {
      fill(this.detail, h("p", { class: "bad" }, error.message));
    }
  }

  view(one) {
    const tone = one.duration === null ? "warn" : one.error_code ? "bad" : "good";
    const facts = [
      [t("Server"), one.server || t("built in")],
      [t("Began"), stamp(one.at)],
      [t("Took"), one.duration === null ? "" : seconds(one.duration)],
      [t("User"), one.user],
      [t("Rules of today"), one.rule ? `${t(one.rule.action)}${one.rule.rule ? ` — ${one.rule.rule}` : ""}${one.rule.source ? ` (${one.rule.source})` : ""}` : ""],
      [t("Id"), one.call_id],
    ].filter(([, value]) => value);
    const missing = Object.entries(one.missing ?? {});
    return h(
      "article",
      null,
      h("a", { class: "back", href: "#/calls" }, `← ${t("Calls")}`),
      h("h1", null, h("bdi", null, one.tool)),
      h("p", { class: tone }, one.duration === null ? t("running") : one.error_code ? `✗ ${one.error_code}` : `✓ ${t("ok")}`),
      h("dl", null, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, h("bdi", null, value))))),
      one.record
        ? [
            h("h2", { class: "sub" }, t("Arguments")),
            h("div", { class: "tree" }, tree(parse(one.arguments_json), "", true)),
            missing.length ? h("p", { class: "dim" }, `${t("Not kept")}: ${missing.map(([where, why]) => `${where} (${t(why)})`).join(", ")}`) : null,
            h("h2", { class: "sub" }, t("Answer")),
            h("pre", { tabindex: "0", class: one.error_code ? "bad" : "" }, one.result, one.result_chars > one.result.length ? `\n… ${count(one.result_chars)} ${t("characters")}` : ""),
          ]
        : h("p", { class: "dim" }, t("Its arguments and its answer are not in the log.")),
      this.about.read_only
        ? null
        : one.obstacle
          ? h("p", { class: "dim" }, `${t("It cannot be repeated")}: ${one.obstacle}`)
          : h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => repeat(one.tool, one.arguments_json) }, `${t("Repeat")} …`)),
    );
  }
}
