// The fleet: every server with its state, why it is down, the command that fixes it, and its calls.

import { confirm, fill, h, keyed, s, say } from "./dom.js";
import { get, post } from "./api.js";
import { copyButton, count, kilo, megabytes, seconds, span, t } from "./words.js";

const MARKS = { ready: "●", degraded: "◑", connecting: "◐", backoff: "◌", needs_auth: "◉", failed: "✗", broken: "✗", idle: "○", closed: "○", off: "○" };
const TONES = { ready: "good", degraded: "warn", connecting: "warn", backoff: "warn", needs_auth: "warn", failed: "bad", broken: "bad" };
const ORDER = ["failed", "broken", "needs_auth", "backoff", "degraded", "connecting", "ready", "idle", "closed", "off"];
const path = (name, rest = "") => `servers/${encodeURIComponent(name)}${rest}`;

export class Fleet {
  constructor(about) {
    this.about = about;
    this.open = new Set();
    this.details = new Map();
    this.busy = new Map();
    this.data = null;
    this.head = h("p", { class: "count", role: "status" });
    this.list = h("ul", { class: "cards" });
    this.node = h("section", null, h("h1", null, t("Fleet")), this.head, this.list);
    this.timer = setInterval(() => this.tick(), 1000);
  }

  async load() {
    this.data = await get("fleet");
    this.at = performance.now();
    for (const name of this.open) this.inspect(name);
    this.draw();
  }

  news(data) {
    return data.servers.length || data.reloaded ? true : data.metered.length ? "later" : false;
  }

  leave() {
    clearInterval(this.timer);
  }

  tick() {
    const passed = (performance.now() - this.at) / 1000;
    for (const node of this.list.querySelectorAll("[data-retry]"))
      node.textContent = `${t("next try in")} ${span(Math.max(0, Number(node.dataset.retry) - passed))}`;
    for (const node of this.list.querySelectorAll("[data-since]"))
      node.textContent = `${t("for")} ${span(Number(node.dataset.since) + passed)}`;
  }

  draw() {
    const { count: all, servers } = this.data;
    fill(
      this.head,
      h("b", null, `${all.ready} / ${all.servers}`),
      ` ${t("servers ready")} · ${count(all.running)} ${t("running")} · ${count(all.calls)} ${t("calls")} · `,
      h("span", { class: all.failed ? "bad" : "" }, `${count(all.failed)} ${t("failed")}`),
    );
    const rows = [...servers].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.name.localeCompare(b.name));
    // What moves by itself every second is not a reason to make a card again.
    keyed(
      this.list,
      rows.map((row) => ({ row: { ...row, in_state: null, retry_in: row.retry_in === null ? null : 0 }, open: this.open.has(row.name), details: this.details.get(row.name), busy: this.busy.get(row.name) })),
      ({ row }) => row.name,
      ({ row, open, details, busy }) => this.card(servers.find((one) => one.name === row.name), open, details, busy),
    );
    for (const row of rows) {
      const card = [...this.list.children].find((one) => one.dataset.key === row.name);
      const since = card.querySelector(".since");
      if (row.in_state === null) since.textContent = "";
      else since.dataset.since = row.in_state;
      if (row.retry_in !== null) card.querySelector(".retry").dataset.retry = row.retry_in;
    }
    if (!rows.length) fill(this.list, h("li", { class: "card" }, t("No servers. Import them:"), " ", h("code", null, "dragoman import --all")));
    this.tick();
  }

  card(row, open, details, busy) {
    const tone = TONES[row.state] ?? "off";
    const label = `${t("Details of")} ${row.name}`;
    const facts = [
      row.transport,
      row.tools ? `${count(row.tools)} ${t("tools")}` : "",
      row.sandbox ? `${t("sandbox")} ${row.sandbox}` : "",
      row.share ? t("shared") : "",
      row.tokens ? `${t("definitions cost")} ${kilo(row.tokens)} ${t("tokens")}` : "",
      row.state === "broken" ? "" : t("{0} calls in {1} days", count(row.logged ?? 0), this.data.days),
    ].filter(Boolean);
    return h(
      "li",
      { class: `card ${tone}` },
      h(
        "div",
        { class: "top" },
        h(
          "h2",
          null,
          h("span", { class: `mark ${tone}`, "aria-hidden": "true" }, MARKS[row.state] ?? "○"),
          " ",
          h("bdi", null, row.name),
        ),
        h("span", { class: `state ${tone}` }, t(row.word)),
        h("span", { class: "since dim" }),
        h("span", { class: "facts dim" }, facts.join(" · ")),
        h("button", { type: "button", class: "small fold", "data-focus": "fold", "aria-expanded": String(open), "aria-label": label, onclick: () => this.toggle(row.name) }, open ? "▾" : "▸"),
      ),
      row.cause || row.retry_in !== null
        ? h(
            "div",
            { class: "why" },
            row.cause ? h("p", { class: "cause" }, h("b", null, `${t("Why")}: `), h("bdi", null, row.cause)) : null,
            row.next_step
              ? h("p", null, h("b", null, `${t("Fix")}: `), h("code", null, row.next_step), " ", copyButton(row.next_step))
              : null,
            row.retry_in === null ? null : h("p", null, h("span", { class: "retry" }), row.crash_loop ? ` (${t("failed repeatedly")})` : ""),
          )
        : null,
      row.calls || row.recent.length ? this.meters(row) : null,
      row.changes ? h("p", { class: "warn" }, `${count(row.changes)} ${t("changed definitions")}: `, h("a", { href: "#/trust" }, t("look at them"))) : null,
      row.restarts || row.lost_calls || row.failed_connects
        ? h("p", { class: "dim" }, `${count(row.restarts)} ${t("restarts")}, ${count(row.failed_connects)} ${t("failed starts")}, ${count(row.lost_calls)} ${t("calls lost by them")}`)
        : null,
      this.buttons(row, busy),
      open ? this.inside(row, details) : null,
    );
  }

  meters(row) {
    return h(
      "div",
      { class: "meters" },
      h("figure", null, h("figcaption", null, t("latency")), sparkline(row.recent), h("span", null, row.p50 === null ? "" : `p50 ${seconds(row.p50)} · p95 ${seconds(row.p95)}`)),
      h("figure", null, h("figcaption", null, t("calls")), outcomeBar(row), h("span", null, `${count(row.calls)} · `, h("span", { class: row.failed ? "bad" : "" }, `${count(row.failed)} ${t("failed")}`), row.in_flight ? ` · ${count(row.in_flight)} ${t("running")}` : "")),
    );
  }

  buttons(row, busy) {
    if (this.about.read_only || row.state === "broken") return null;
    const button = (action, word) =>
      h("button", { type: "button", "data-focus": action, disabled: Boolean(busy), onclick: () => this.act(row, action, word) }, busy === action ? `${t(word)} …` : t(word));
    return h(
      "div",
      { class: "buttons" },
      row.is_on ? button("restart", "Restart") : null,
      this.about.is_operator ? (row.is_on ? button("disable", "Disable") : button("enable", "Enable")) : null,
      this.about.is_operator ? button("doctor", "Doctor") : null,
      row.tools ? h("a", { class: "button", href: `#/tools?server=${encodeURIComponent(row.name)}` }, t("Tools")) : null,
      this.about.is_operator && row.transport === "stdio" ? h("a", { class: "button", href: `#/logs/${encodeURIComponent(row.name)}` }, t("Logs")) : null,
    );
  }

  async act(row, action, word) {
    const what = {
      restart: t("Running calls of this server fail."),
      disable: t("Its tools are withdrawn, and it is stopped, until the configuration is read again."),
      enable: t("It is started."),
      doctor: t("It is started or reached once more, beside the connection in use."),
    }[action];
    if (!(await confirm(`${t(word)} ${row.name}?`, h("p", null, what), t(word), t("Cancel")))) return;
    this.busy.set(row.name, action);
    this.draw();
    try {
      const found = await post(path(row.name, `/${action}`));
      if (action === "doctor") {
        this.open.add(row.name);
        this.details.set(row.name, { ...this.details.get(row.name), doctor: found });
      } else say(`${row.name}: ${t(found.state)}`);
    } catch (error) {
      say(`${row.name}: ${error.message}`, true);
    }
    this.busy.delete(row.name);
    await this.load();
  }

  toggle(name) {
    if (this.open.delete(name)) return this.draw();
    this.open.add(name);
    this.draw();
    return this.inspect(name);
  }

  async inspect(name) {
    try {
      this.details.set(name, { ...this.details.get(name), ...(await get(path(name))) });
    } catch (error) {
      this.details.set(name, { problem: error.message });
    }
    this.draw();
  }

  inside(row, details) {
    if (!details) return h("p", { class: "dim" }, "…");
    if (details.problem) return h("p", { class: "bad" }, details.problem);
    const facts = [
      [t("Server"), row.server_label],
      [t("Protocol"), row.protocol],
      [t("Defined in"), row.origin],
      [t("Shared by users"), details.users?.join(", ")],
      [t("Errors"), Object.entries(row.errors).map(([code, number]) => `${code} × ${number}`).join(", ")],
      [t("Time in states"), Object.entries(details.states ?? {}).map(([state, time]) => `${t(state)} ${span(time)}`).join(", ")],
      [t("Processes"), details.processes?.map((one) => `${one.name} (${one.pid}) ${megabytes(one.bytes)}`).join(", ")],
    ].filter(([, value]) => value);
    return h(
      "div",
      { class: "inside" },
      h("dl", null, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, h("bdi", null, value))))),
      details.doctor ? doctorView(details.doctor) : null,
      details.tools?.length
        ? h(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": t("Calls by tool") },
            h(
              "table",
              null,
              h("thead", null, h("tr", null, [t("Tool"), t("calls"), t("failed"), "p50", "p95"].map((one, at) => h("th", { scope: "col", class: at ? "number" : null }, one)))),
              h(
                "tbody",
                null,
                details.tools.slice(0, 20).map((one) =>
                  h("tr", null, h("td", null, h("bdi", null, one.tool)), h("td", { class: "number" }, count(one.calls)), h("td", { class: one.failed ? "number bad" : "number" }, count(one.failed)), h("td", { class: "number" }, one.latency ? seconds(one.latency.p50) : ""), h("td", { class: "number" }, one.latency ? seconds(one.latency.p95) : "")),
                ),
              ),
            ),
          )
        : null,
    );
  }
}

function doctorView(found) {
  return h(
    "div",
    { class: "doctor" },
    h("h3", null, t("Doctor")),
    h("ol", null, found.stages.map((one) => h("li", { class: one.outcome === "ok" ? "good" : one.outcome === "warning" ? "warn" : "bad" }, `${{ ok: "✓", warning: "!" }[one.outcome] ?? "✗"} ${one.name} ${seconds(one.seconds)} `, h("bdi", null, one.detail)))),
    found.cause ? h("p", { class: "cause" }, found.cause) : h("p", { class: "good" }, t("It works.")),
    found.next_step ? h("p", null, h("code", null, found.next_step), " ", copyButton(found.next_step)) : null,
    found.hints.length ? h("ul", null, found.hints.map((one) => h("li", null, one))) : null,
    found.stderr.length && !found.ok ? h("pre", { tabindex: "0" }, found.stderr.join("\n")) : null,
  );
}

/** Draw the latest durations as bars, the newest on the right. */
function sparkline(values) {
  const top = Math.max(...values, 1e-9);
  const label = values.length ? `${t("latency")}: ${values.length} ${t("calls")}, ${t("at most")} ${seconds(top)}` : t("no calls yet");
  return s(
    "svg",
    { class: "spark", viewBox: "0 0 120 24", preserveAspectRatio: "none", role: "img", "aria-label": label },
    values.map((value, at) => {
      const height = Math.max(2, (value / top) * 24);
      return s("rect", { x: 120 - (values.length - at) * 2, y: 24 - height, width: 1.6, height });
    }),
  );
}

/** Draw the share of failed calls as a bar. */
function outcomeBar(row) {
  const share = row.calls ? row.failed / row.calls : 0;
  const width = row.failed ? Math.max(2, share * 120) : 0;
  return s(
    "svg",
    { class: "outcomes", viewBox: "0 0 120 8", preserveAspectRatio: "none", role: "img", "aria-label": `${row.failed} / ${row.calls} ${t("failed")}` },
    s("rect", { class: "ok", x: 0, y: 0, width: 120 - width, height: 8 }),
    s("rect", { class: "no", x: 120 - width, y: 0, width, height: 8 }),
  );
}
