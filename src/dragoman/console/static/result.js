// The result of a call: text, a table, a tree of JSON, images, and the sources with their dates.

import { h, fill } from "./dom.js";
import { Num, parse, write } from "./json.js";
import { ago, seconds, stamp, t } from "./words.js";

const MOST_ROWS = 500;
const MOST_COLUMNS = 30;
const MOST_NODES = 200;

/** Return the view of a result. */
export function resultView(result) {
  const data = structured(result);
  const table = data === undefined ? null : tableOf(data);
  const images = result.parts.filter((one) => one.kind === "image" && one.data);
  const others = result.parts.filter((one) => !["image", "structured"].includes(one.kind) || (one.kind === "image" && !one.data));
  const views = [
    [t("Text"), result.text ? () => pre(result.text, result.text_chars) : null],
    [t("Table"), table],
    ["JSON", data === undefined ? null : () => h("div", { class: "tree" }, tree(data, "", true))],
    [t("Images"), images.length ? () => h("div", { class: "images" }, images.map((one) => h("img", { src: one.data, alt: one.about }))) : null],
    [t("Parts"), others.length ? () => h("ul", null, others.map((one) => h("li", null, `${one.kind}: `, h("bdi", null, one.about)))) : null],
  ].filter(([, make]) => make);
  const body = h("div", { class: "body", role: "tabpanel", tabindex: "0" });
  const best = table ? t("Table") : images.length && !result.text ? t("Images") : views[0]?.[0];
  const tabs = views.map(([name, make]) => {
    const tab = h("button", { type: "button", role: "tab", onclick: () => open() }, name);
    const open = () => {
      for (const other of tabs) other.setAttribute("aria-selected", String(other === tab));
      body.setAttribute("aria-label", name);
      fill(body, make());
    };
    tab.open = open;
    return tab;
  });
  tabs[views.findIndex(([name]) => name === best)]?.open();
  return h(
    "section",
    { class: result.success ? "result" : "result failed", "aria-label": t("Result") },
    h(
      "p",
      { class: "verdict" },
      result.success ? h("b", { class: "good" }, `✓ ${t("ok")}`) : h("b", { class: "bad" }, `✗ ${result.error_code || t("failed")}`),
      ` ${seconds(result.duration)}`,
      result.task ? ` · ${t("goes on as a task")}` : "",
    ),
    result.success ? null : pre(result.error),
    views.length > 1 ? h("div", { role: "tablist", class: "tabs" }, tabs) : null,
    views.length ? body : null,
    sources(result),
  );
}

function sources(result) {
  if (!result.sources.length) return null;
  return h(
    "div",
    { class: "sources" },
    h("h2", { class: "sub" }, t("Sources")),
    h(
      "ul",
      null,
      result.sources.map((one) =>
        h("li", null, h("bdi", null, [one.title, one.locator, one.url].filter(Boolean).join(" · ")), ` — ${one.updated ? `${t("updated")} ${one.updated}` : t("date unknown")}`),
      ),
    ),
    result.at ? h("p", { class: "dim" }, `${t("answered by")} ${result.server}, ${stamp(result.at)} (${ago(result.at)})`) : null,
  );
}

function structured(result) {
  for (const text of [result.structured_json, /^\s*[[{]/.test(result.text) ? result.text : null])
    if (text)
      try {
        return parse(text);
      } catch {
        // Text that only looks like JSON.
      }
  return undefined;
}

const pre = (text, size = 0) => h("pre", { tabindex: "0" }, text, size > text.length ? `\n… ${size} ${t("characters")}` : "");

/** Return a function that makes a table of a list of objects; null if it is none. */
function tableOf(data) {
  const rows = Array.isArray(data) ? data : data instanceof Map && data.size === 1 ? [...data.values()][0] : null;
  if (!Array.isArray(rows) || !rows.length || !rows.every((one) => one instanceof Map)) return null;
  const columns = [...new Set(rows.slice(0, MOST_ROWS).flatMap((one) => [...one.keys()]))].slice(0, MOST_COLUMNS);
  if (!columns.length) return null;
  const cell = (value) =>
    value === undefined ? h("td") : value instanceof Num ? h("td", { class: "number" }, value.raw) : h("td", null, typeof value === "string" ? value : write(value));
  return () =>
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": t("Table") },
      h(
        "table",
        null,
        h("thead", null, h("tr", null, columns.map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", null, rows.slice(0, MOST_ROWS).map((row) => h("tr", null, columns.map((one) => cell(row.get(one)))))),
      ),
      rows.length > MOST_ROWS ? h("p", { class: "dim" }, `${MOST_ROWS} / ${rows.length}`) : null,
    );
}

/** Return a value as a tree that can be folded; the inside is made when it is opened. */
export function tree(value, name = "", open = false) {
  const label = name === "" ? null : h("span", { class: "key" }, `${name}: `);
  if (!(value instanceof Map) && !Array.isArray(value))
    return h("div", { class: "leaf" }, label, h("span", { class: value instanceof Num ? "num" : typeof value === "string" ? "str" : "word" }, write(value)));
  const entries = value instanceof Map ? [...value] : value.map((one, index) => [String(index), one]);
  const brief = value instanceof Map ? `{${entries.length}}` : `[${entries.length}]`;
  const inside = h("div", { class: "inside" });
  const unfold = () => {
    if (inside.childElementCount) return;
    fill(inside, entries.slice(0, MOST_NODES).map(([key, one]) => tree(one, key, entries.length < 20 && open)));
    if (entries.length > MOST_NODES) inside.append(h("div", { class: "dim" }, `… ${entries.length - MOST_NODES}`));
  };
  const node = h("details", { ontoggle: () => node.open && unfold() }, h("summary", null, label, h("span", { class: "dim" }, brief)), inside);
  if (open) {
    node.open = true;
    unfold();
  }
  return node;
}
