// The page itself: logging in, the bar, which view is open, and the events.

import { fill, h, say, soon } from "./dom.js";
import { enter, follow, get, leave } from "./api.js";
import { Calls } from "./calls.js";
import { Fleet } from "./fleet.js";
import { Inbox } from "./inbox.js";
import { Logs, Tasks, Users } from "./more.js";
import { Tools } from "./tools.js";
import { Trust } from "./trust.js";
import { language, languages, setLanguage, t } from "./words.js";

const VIEWS = { fleet: Fleet, tools: Tools, calls: Calls, inbox: Inbox, trust: Trust, logs: Logs, tasks: Tasks, users: Users };
const FOR_OPERATORS = new Set(["trust", "logs", "users"]);
const bar = document.getElementById("bar");
const main = document.getElementById("main");

let about = null;
let view = null;
let name = "";
let waiting = 0;
let connected = true;

const stored = (key) => {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
};
const store = (key, value) => {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The choice lasts as long as the page.
  }
};

function shade(value) {
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
}

function names() {
  return Object.keys(VIEWS).filter((one) => !FOR_OPERATORS.has(one) || about.is_operator).filter((one) => one !== "users" || about.gateway);
}

function drawBar() {
  const titles = { fleet: "Fleet", tools: "Tools", calls: "Calls", inbox: "Inbox", trust: "Trust", logs: "Logs", tasks: "Tasks", users: "Users" };
  document.title = `${waiting ? `(${waiting}) ` : ""}${t(titles[name] ?? "")} – dragoman`;
  fill(
    bar,
    h("a", { class: "brand", href: "#/fleet" }, h("img", { src: "icon.svg", alt: "", width: 20, height: 20 }), "dragoman"),
    h(
      "nav",
      { "aria-label": t("Views") },
      names().map((one, at) =>
        h("a", { href: `#/${one}`, "aria-current": one === name ? "page" : null, accesskey: String(at + 1), title: `${at + 1}` }, t(titles[one]), one === "inbox" && waiting ? h("span", { class: "badge", "aria-label": `${waiting} ${t("waiting")}` }, String(waiting)) : null),
      ),
    ),
    h("span", { class: connected ? "link good" : "link bad", title: connected ? t("connected") : t("no connection: trying again") }, connected ? "●" : "○", h("span", { class: "hidden" }, connected ? t("connected") : t("no connection: trying again"))),
    about.read_only ? h("span", { class: "tag" }, t("read-only")) : null,
    about.user ? h("bdi", { class: "dim" }, about.user) : null,
    h(
      "select",
      {
        "aria-label": t("Language"),
        onchange: (event) => {
          setLanguage(event.target.value);
          store("dragoman-language", event.target.value);
          open();
        },
      },
      Object.entries(languages).map(([code, label]) => h("option", { value: code, selected: code === language() }, label)),
    ),
    h("button", { type: "button", class: "small", "aria-label": t("Light or dark"), title: t("Light or dark"), onclick: toggleShade }, "◐"),
    h("button", { type: "button", class: "small", onclick: logOut }, t("Log out")),
  );
}

function toggleShade() {
  const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  shade(isDark ? "light" : "dark");
  store("dragoman-theme", isDark ? "light" : "dark");
}

async function logOut() {
  try {
    await leave();
  } catch {
    // It is over in any case.
  }
  logIn(t("You are logged out."));
}

function logIn(message) {
  about = null;
  view?.leave?.();
  view = null;
  fill(bar, h("span", { class: "brand" }, h("img", { src: "icon.svg", alt: "", width: 20, height: 20 }), "dragoman"));
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const submit = async (event) => {
    event.preventDefault();
    try {
      await enter(token.value.trim().replace(/^.*#token=/, ""));
      await begin();
    } catch (error) {
      say(error.message, true);
    }
  };
  fill(
    main,
    h(
      "section",
      { class: "login" },
      h("h1", null, t("Console")),
      message ? h("p", null, message) : null,
      h("p", null, t("Open the link that dragoman has printed; it works once. For a new one, start it again.")),
      h("form", { onsubmit: submit }, h("label", { for: "token" }, t("Link, or the token of a gateway")), token, h("button", { type: "submit", class: "main" }, t("Log in"))),
    ),
  );
  token.focus();
}

/** Read the view again, without the words of its address. */
const reload = soon(() => load(), 50);
const reloadLater = soon(() => load(), 2000);
const recount = soon(async () => {
  try {
    const { pending } = await get("inbox");
    window.dispatchEvent(new CustomEvent("waiting", { detail: pending.length }));
  } catch {
    // Said by the view that is open.
  }
}, 200);

async function load(words, query) {
  if (!view) return;
  try {
    if (view.refresh && !words) await view.refresh();
    else await view.load(words, query);
  } catch (error) {
    if (about) say(error.message, true);
  }
}

async function open() {
  if (!about) return;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").filter(Boolean).map(decode);
  const wanted = names().includes(words[0]) ? words[0] : "fleet";
  const isNew = wanted !== name || !view || view.language !== language();
  if (isNew) {
    view?.leave?.();
    name = wanted;
    view = new VIEWS[name](about);
    view.language = language();
    fill(main, view.node);
  }
  drawBar();
  if (isNew) await load(words.slice(1), new URLSearchParams(query));
  else if (view.show && words[1]) await view.show(words[1]);
  else await load(words.slice(1), new URLSearchParams(query));
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function onevent(kind, data) {
  if (!about || !view) return;
  if (kind === "resync") {
    reload();
    recount();
  } else {
    const news = view.news(data);
    if (news === "later") reloadLater();
    else if (news) reload();
    if (data.inbox) recount();
  }
}

let follows = false;
async function begin() {
  about = await get("session");
  if (!location.hash.startsWith("#/")) history.replaceState(null, "", "#/fleet");
  view = null;
  await open();
  if (follows) return;
  follows = true;
  follow(onevent, (state) => {
    connected = state;
    if (about) drawBar();
  }).finally(() => (follows = false));
}

window.addEventListener("hashchange", () => (location.hash.startsWith("#token=") ? start() : open()));
window.addEventListener("left", () => about && logIn(t("The session is over.")));
window.addEventListener("waiting", (event) => {
  if (event.detail === waiting) return;
  waiting = event.detail;
  if (about) drawBar();
});
window.addEventListener("keydown", (event) => {
  if (!about || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") {
    main.querySelector("input[type=search]")?.focus();
    event.preventDefault();
  } else if (/^[1-8]$/.test(event.key) && names()[Number(event.key) - 1]) location.hash = `#/${names()[Number(event.key) - 1]}`;
});

async function start() {
  shade(stored("dragoman-theme"));
  const chosen = stored("dragoman-language");
  setLanguage(chosen in languages ? chosen : navigator.language.startsWith("zh") ? "zh" : "en");
  document.querySelector(".skip").textContent = t("Skip to the content");
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  // Out of the address at once: it would stay in the history.
  if (token) history.replaceState(null, "", location.pathname);
  try {
    if (token) await enter(token);
    await begin();
  } catch (error) {
    logIn(error.status === 401 && !token ? "" : error.message);
  }
}

start();
