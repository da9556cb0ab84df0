// Makes elements. Every text becomes a text node: nothing that a server sends is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; `props` are attributes, `on…` listeners, `class`, `value` and the like. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** Return an element of SVG. */
export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace what is in an element. */
export function fill(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

/** Show items in order, and make again only those whose data changed; the focus stays where it was. */
export function keyed(node, items, key, make) {
  const old = new Map([...node.children].map((one) => [one.dataset.key, one]));
  const active = document.activeElement;
  const inside = node.contains(active) ? active.closest("[data-key]") : null;
  const spot = active?.dataset?.focus;
  let refocus = null;
  const wanted = items.map((item) => {
    const name = key(item);
    const mark = JSON.stringify(item);
    const known = old.get(name);
    if (known && known.dataset.mark === mark) return known;
    const made = make(item);
    made.dataset.key = name;
    made.dataset.mark = mark;
    if (known && known === inside && spot) refocus = made.querySelector(`[data-focus="${CSS.escape(spot)}"]`);
    return made;
  });
  wanted.forEach((one, at) => {
    if (node.children[at] !== one) node.insertBefore(one, node.children[at] ?? null);
  });
  while (node.children.length > wanted.length) node.lastElementChild.remove();
  refocus?.focus({ preventScroll: true });
}

/** Ask a person; resolve to whether they agreed. */
export function confirm(title, body, yes, no) {
  return new Promise((resolve) => {
    const heading = h("h2", { id: "ask" }, title);
    const done = (answer) => () => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const dialog = h(
      "dialog",
      { "aria-labelledby": "ask", oncancel: done(false) },
      heading,
      h("div", { class: "ask" }, body),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: done(false) }, no),
        h("button", { type: "button", class: "main", onclick: done(true), autofocus: true }, yes),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Say something in a line that is read out, for a few seconds. */
export function say(text, bad = false) {
  const place = document.getElementById("say");
  fill(place, text);
  place.className = bad ? "bad shown" : "shown";
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (place.className = ""), bad ? 12000 : 4000);
}

/** Run a function once soon, however often this is called. */
export function soon(run, wait) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      run();
    }, wait);
  };
}

/** A list of rows of one height, of which only the visible ones are made. */
export class Rows {
  constructor({ label, height, make, choose, key }) {
    Object.assign(this, { height, make, choose, key, items: [], chosen: "", at: -1 });
    this.space = h("div", { class: "space" });
    this.node = h(
      "div",
      {
        class: "rows",
        role: "listbox",
        tabindex: "0",
        "aria-label": label,
        onscroll: () => this.draw(),
        onkeydown: (event) => this.press(event),
      },
      this.space,
    );
    this.seen = new ResizeObserver(() => this.draw());
    this.seen.observe(this.node);
    this.node.id = `rows-${Math.random().toString(36).slice(2)}`;
  }

  /** Show these items. With `keep`, what is in sight stays in sight although rows were added above. */
  show(items, { keep = 0 } = {}) {
    this.items = items;
    this.at = items.findIndex((one) => this.key(one) === this.chosen);
    if (keep && this.node.scrollTop > 0) this.node.scrollTop += keep * this.height;
    this.draw();
  }

  draw() {
    const { height } = this;
    this.space.style.height = `${this.items.length * height}px`;
    const from = Math.max(0, Math.floor(this.node.scrollTop / height) - 4);
    const until = Math.min(this.items.length, from + Math.ceil(this.node.clientHeight / height) + 8);
    const visible = this.items.slice(from, until).map((item, at) => ({ item, at: from + at }));
    keyed(
      this.space,
      visible.map(({ item, at }) => ({ item, at, on: this.key(item) === this.chosen, of: this.items.length })),
      (one) => this.key(one.item),
      ({ item, at, on, of }) => {
        const row = this.make(item);
        row.classList.add("row");
        row.id = `${this.node.id}-${at}`;
        row.setAttribute("role", "option");
        row.setAttribute("aria-selected", String(on));
        row.setAttribute("aria-posinset", at + 1);
        row.setAttribute("aria-setsize", of);
        row.style.top = `${at * height}px`;
        row.style.height = `${height}px`;
        row.addEventListener("click", () => this.go(at, true));
        return row;
      },
    );
    if (this.at >= 0) this.node.setAttribute("aria-activedescendant", `${this.node.id}-${this.at}`);
    else this.node.removeAttribute("aria-activedescendant");
    if (until === this.items.length && this.items.length) this.onend?.();
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9, j: 1, k: -1 };
    if (event.key === "Enter" && this.at >= 0) this.choose(this.items[this.at], true);
    else if (event.key in moves && this.items.length) this.go(this.at + moves[event.key], false);
    else return;
    event.preventDefault();
  }

  go(at, open) {
    this.at = Math.min(this.items.length - 1, Math.max(0, at));
    this.chosen = this.key(this.items[this.at]);
    const top = this.at * this.height;
    const view = this.node;
    if (top < view.scrollTop) view.scrollTop = top;
    if (top + this.height > view.scrollTop + view.clientHeight) view.scrollTop = top + this.height - view.clientHeight;
    this.draw();
    if (open) this.choose(this.items[this.at], true);
  }
}
