// The tools: search, a form made from the schema, the call with progress and cancel, and its result.

import { Rows, confirm, fill, h } from "./dom.js";
import { call, get, place } from "./api.js";
import { Form } from "./form.js";
import { asCommand, asCurl, asPython } from "./copies.js";
import { parse, write } from "./json.js";
import { resultView } from "./result.js";
import { copyButton, count, t } from "./words.js";

/** Arguments for the next tool that is opened: of a call that is repeated. */
let prefill = null;
export const repeat = (tool, text) => {
  prefill = { tool, text };
  location.hash = `#/tools/${encodeURIComponent(tool)}`;
};

export class Tools {
  constructor(about) {
    this.about = about;
    this.all = [];
    this.search = h("input", { type: "search", placeholder: t("Search by name or purpose"), "aria-label": t("Search tools"), "data-focus": "search", oninput: () => this.filter() });
    this.server = h("select", { "aria-label": t("Server"), onchange: () => this.filter() });
    this.count = h("p", { class: "dim", role: "status" });
    this.rows = new Rows({
      label: t("Tools"),
      height: 52,
      key: (one) => one.name,
      make: (one) =>
        h("div", null, h("div", { class: "line" }, h("bdi", { class: "name" }, one.name), one.reads ? h("span", { class: "tag" }, t("says: read-only")) : null), h("div", { class: "dim line" }, one.about || one.title)),
      choose: (one) => (location.hash = `#/tools/${encodeURIComponent(one.name)}`),
    });
    this.detail = h("div", { class: "detail" }, h("p", { class: "dim" }, t("Choose a tool to call it.")));
    this.node = h(
      "section",
      { class: "split" },
      h("div", { class: "master" }, h("h1", null, t("Tools")), h("div", { class: "filters" }, this.search, this.server), this.count, this.rows.node),
      this.detail,
    );
  }

  async load(words, query) {
    const { tools } = await get("tools");
    this.all = tools.map((one) => ({ ...one, text: `${one.name} ${one.title} ${one.about}`.toLowerCase() }));
    const wanted = query?.get("server") ?? this.server.value;
    const servers = [...new Set(this.all.map((one) => one.server))].sort();
    fill(this.server, h("option", { value: "" }, t("all servers")), servers.map((one) => h("option", { value: one, selected: one === wanted }, one)));
    this.filter();
    if (words?.[0]) await this.show(words[0]);
    else if (words) this.node.classList.remove("chosen");
  }

  news(data) {
    return Boolean(data.servers.length || data.reloaded);
  }

  /** The tools changed: keep the form that is being filled in. */
  async refresh() {
    await this.load();
  }

  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const server = this.server.value;
    const found = this.all.filter((one) => (!server || one.server === server) && words.every((word) => one.text.includes(word)));
    const rank = (one) => (words.length && one.name.toLowerCase().includes(words[0]) ? 0 : 1);
    if (words.length) found.sort((a, b) => rank(a) - rank(b));
    fill(this.count, `${count(found.length)} / ${count(this.all.length)} ${t("tools")}`);
    this.rows.show(found);
  }

  async show(name) {
    this.node.classList.add("chosen");
    this.rows.chosen = name;
    this.rows.show(this.rows.items);
    let tool;
    try {
      tool = await get(`tools/${encodeURIComponent(name)}`);
    } catch (error) {
      return fill(this.detail, h("p", { class: "bad" }, error.message));
    }
    let given = new Map();
    if (prefill?.tool === name)
      try {
        given = parse(prefill.text);
      } catch {
        // Arguments that were cut.
      }
    prefill = null;
    return fill(this.detail, new ToolView(this.about, tool, given instanceof Map ? given : new Map()).node);
  }
}

class ToolView {
  constructor(about, tool, given) {
    this.tool = tool;
    this.outcome = h("div", { class: "outcome", "aria-live": "polite" });
    this.problem = h("span", { class: "wrong" });
    this.run = h("button", { type: "submit", class: "main", "data-focus": "call" }, t("Call"));
    this.stop = h("button", { type: "button", hidden: true, onclick: () => this.abort?.abort() }, t("Cancel"));
    this.copies = h("div", { class: "buttons" });
    let schema;
    try {
      schema = parse(tool.input_schema);
    } catch {
      schema = new Map();
    }
    this.form = new Form(schema, given, (fits, problem) => {
      this.run.disabled = about.read_only || !fits || Boolean(this.abort);
      this.fits = fits;
      fill(this.problem, fits ? "" : problem);
      this.copy();
    });
    const hints = Object.entries(tool.annotations).filter(([, value]) => value === true).map(([key]) => key);
    this.node = h(
      "article",
      null,
      h("a", { class: "back", href: "#/tools" }, `← ${t("Tools")}`),
      h("h1", null, h("bdi", null, tool.name)),
      h("p", { class: "dim" }, `${tool.server} · ${tool.original_name}`, hints.length ? ` · ${t("the server says")}: ${hints.join(", ")}` : ""),
      h("p", { class: "description" }, tool.description),
      h(
        "form",
        { onsubmit: (event) => this.submit(event), novalidate: true },
        this.form.node,
        h("div", { class: "buttons" }, this.run, this.stop, about.read_only ? h("span", { class: "dim" }, t("read-only")) : this.problem),
      ),
      this.copies,
      this.outcome,
      h("details", null, h("summary", null, t("Schema")), h("pre", { tabindex: "0" }, pretty(tool.input_schema)), tool.output_schema ? [h("h2", { class: "sub" }, t("Schema of the result")), h("pre", { tabindex: "0" }, pretty(tool.output_schema))] : null),
    );
    this.about = about;
    this.copy();
  }

  copy() {
    if (!this.copies || !this.form) return;
    const { name } = this.tool;
    const { value } = this.form;
    const base = this.about.gateway ? `${location.origin}${place.replace(/console\/$/, "")}mcp` : "";
    fill(
      this.copies,
      h("span", { class: "dim" }, `${t("Copy as")} `),
      copyButton(asCommand(name, value), "dragoman call"),
      copyButton(asPython(name, value), "Python"),
      copyButton(asCurl(base, name, value), "curl"),
    );
  }

  async submit(event) {
    event.preventDefault();
    if (!this.fits || this.abort) return;
    const text = write(this.form.value);
    const shown = h("div", null, h("p", null, h("bdi", null, this.tool.name)), h("pre", { tabindex: "0" }, write(this.form.value, "  ")));
    if (!(await confirm(t("Call this tool?"), shown, t("Call"), t("Cancel")))) return;
    this.abort = new AbortController();
    this.run.disabled = true;
    this.stop.hidden = false;
    const bar = h("progress", { "aria-label": t("Progress") });
    const line = h("span", { class: "dim" }, t("running"));
    const inbox = h("a", { href: "#/inbox", target: "_blank", hidden: true }, t("calls wait in the inbox"));
    const wait = (event) => (inbox.hidden = !event.detail);
    window.addEventListener("waiting", wait);
    fill(this.outcome, bar, " ", line, " ", inbox);
    this.outcome.scrollIntoView({ block: "nearest" });
    try {
      const body = `{"tool":${JSON.stringify(this.tool.name)},"arguments":${text}}`;
      const onprogress = ({ done, total, message }) => {
        if (total) Object.assign(bar, { max: total, value: done });
        fill(line, `${done}${total ? ` / ${total}` : ""} ${message}`);
      };
      const found = await call(body, { signal: this.abort.signal, onprogress });
      fill(this.outcome, resultView(found));
      this.outcome.scrollIntoView({ block: "nearest" });
    } catch (error) {
      fill(this.outcome, h("p", { class: "bad" }, error.name === "AbortError" ? t("Cancelled.") : error.message));
    }
    window.removeEventListener("waiting", wait);
    this.abort = null;
    this.stop.hidden = true;
    this.run.disabled = !this.fits;
    this.run.focus({ preventScroll: true });
  }
}

const pretty = (text) => {
  try {
    return write(parse(text), "  ");
  } catch {
    return text;
  }
};
