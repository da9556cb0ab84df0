// A form for a JSON schema: a field for each property, checked while typing.
// What the form cannot express is edited as JSON in place. The server checks every call again.

import { h, fill } from "./dom.js";
import { Num, isEqual, isNumber, isWhole, kindOf, parse, write } from "./json.js";
import { t } from "./words.js";

const DEEPEST = 8;
const MOST_CHOICES = 300;
const none = undefined;

const at = (schema, key) => (schema instanceof Map ? schema.get(key) : undefined);
const text = (value) => (typeof value === "string" ? value : "");

/** Return a schema with its references and `allOf` put together. */
export function resolve(schema, root, depth = 0) {
  if (!(schema instanceof Map) || depth > 20) return new Map();
  let found = schema;
  const ref = at(schema, "$ref");
  if (typeof ref === "string" && ref.startsWith("#")) {
    let target = root;
    for (const part of decodeURIComponent(ref.slice(1)).split("/").slice(1)) {
      const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
      target = Array.isArray(target) ? target[Number(name)] : at(target, name);
    }
    found = new Map([...resolve(target, root, depth + 1), ...schema]);
    found.delete("$ref");
  }
  const all = at(found, "allOf");
  if (Array.isArray(all)) {
    const merged = new Map(found);
    merged.delete("allOf");
    for (const one of all)
      for (const [key, value] of resolve(one, root, depth + 1)) {
        const known = merged.get(key);
        if (key === "properties" && known instanceof Map && value instanceof Map) merged.set(key, new Map([...known, ...value]));
        else if (key === "required" && Array.isArray(known) && Array.isArray(value)) merged.set(key, [...known, ...value]);
        else if (known === undefined) merged.set(key, value);
      }
    found = merged;
  }
  return found;
}

/** Return the one schema beside `null`, the choices, or neither. */
function variants(schema, root) {
  const choices = at(schema, "anyOf") ?? at(schema, "oneOf");
  if (!Array.isArray(choices)) return [];
  return choices.map((one) => resolve(one, root)).filter((one) => at(one, "type") !== "null");
}

function typeOf(schema) {
  const type = at(schema, "type");
  const types = (Array.isArray(type) ? type : [type]).filter((one) => one !== "null" && one !== undefined);
  if (types.length === 1) return types[0];
  if (!types.length && at(schema, "properties")) return "object";
  return "";
}

const LIMITS = [
  ["minimum", (a, b) => compare(a, b) >= 0, "at least"],
  ["maximum", (a, b) => compare(a, b) <= 0, "at most"],
  ["exclusiveMinimum", (a, b) => compare(a, b) > 0, "more than"],
  ["exclusiveMaximum", (a, b) => compare(a, b) < 0, "less than"],
];

/** Compare two numbers by their texts: whole ones exactly. */
function compare(one, other) {
  if (isWhole(one) && isWhole(other)) {
    const [a, b] = [BigInt(one), BigInt(other)];
    return a < b ? -1 : a > b ? 1 : 0;
  }
  return Number(one) - Number(other);
}

/** Return what is wrong with a value, as `[place, message]`. */
export function problems(value, schema, root, place = "", depth = 0) {
  schema = resolve(schema, root);
  const found = [];
  const wrong = (message, where = place) => found.push([where, message]);
  const choices = at(schema, "anyOf") ?? at(schema, "oneOf");
  if (Array.isArray(choices) && depth < DEEPEST) {
    const each = choices.map((one) => problems(value, one, root, place, depth + 1));
    if (!each.some((one) => !one.length)) return each.sort((a, b) => a.length - b.length)[0] ?? [];
  }
  const options = at(schema, "enum");
  if (Array.isArray(options) && !options.some((one) => isEqual(one, value))) wrong(t("not one of the choices"));
  if (schema.has("const") && !isEqual(schema.get("const"), value)) wrong(`${t("must be")} ${write(schema.get("const"))}`);
  const type = at(schema, "type");
  const types = Array.isArray(type) ? type : type ? [type] : [];
  const kind = kindOf(value);
  const fits = (one) => one === kind || (one === "number" && kind === "integer") || (one === "integer" && kind === "number" && Number.isInteger(Number(value.raw)));
  if (types.length && !types.some(fits)) return [[place, `${t("must be")} ${types.join(" | ")}`]];
  if (kind === "string") {
    const size = [...value].length;
    const [least, most, pattern] = ["minLength", "maxLength", "pattern"].map((key) => at(schema, key));
    if (least && size < Number(least.raw)) wrong(`${t("at least")} ${least.raw} ${t("characters")}`);
    if (most && size > Number(most.raw)) wrong(`${t("at most")} ${most.raw} ${t("characters")}`);
    // A pattern of a server could take for ever on a long text; the server's own side checks it.
    if (typeof pattern === "string" && pattern.length < 200 && size < 200 && !/[+*}]\)?[+*{]/.test(pattern)) {
      let made = null;
      try {
        made = new RegExp(pattern, "u");
      } catch {
        // Another dialect of patterns.
      }
      if (made && !made.test(value)) wrong(`${t("must match")} ${pattern}`);
    }
  }
  if (kind === "integer" || kind === "number")
    for (const [key, holds, words] of LIMITS) {
      const limit = at(schema, key);
      if (limit instanceof Num && !holds(value.raw, limit.raw)) wrong(`${t(words)} ${limit.raw}`);
    }
  if (kind === "array") {
    const [least, most, items] = ["minItems", "maxItems", "items"].map((key) => at(schema, key));
    if (least && value.length < Number(least.raw)) wrong(`${t("at least")} ${least.raw}`);
    if (most && value.length > Number(most.raw)) wrong(`${t("at most")} ${most.raw}`);
    if (items instanceof Map && depth < DEEPEST)
      value.slice(0, 200).forEach((one, index) => found.push(...problems(one, items, root, `${place}/${index}`, depth + 1)));
  }
  if (kind === "object") {
    const properties = at(schema, "properties") ?? new Map();
    for (const name of at(schema, "required") ?? []) if (!value.has(name)) wrong(t("required"), `${place}/${name}`);
    for (const [name, one] of value) {
      const inner = at(properties, name);
      if (inner instanceof Map && depth < DEEPEST) found.push(...problems(one, inner, root, `${place}/${name}`, depth + 1));
      else if (inner === undefined && at(schema, "additionalProperties") === false) wrong(t("unknown"), `${place}/${name}`);
    }
  }
  return found;
}

/** A form with the JSON beside it; `value` is a map of the arguments. */
export class Form {
  constructor(schema, value, onchange) {
    this.root = schema;
    this.value = value;
    this.onchange = onchange;
    this.broken = new Map();
    this.errors = new Map();
    this.count = 0;
    this.fields = h("div", { class: "fields" });
    this.raw = h("textarea", {
      class: "code",
      rows: 7,
      spellcheck: "false",
      "aria-label": t("Arguments as JSON"),
      oninput: () => this.typed(),
    });
    this.note = h("p", { class: "wrong", role: "alert" });
    this.node = h("div", { class: "form" }, this.fields, h("div", { class: "raw" }, h("h2", { class: "sub" }, "JSON"), this.raw, this.note));
    this.rebuild();
    this.update();
  }

  rebuild() {
    this.broken.clear();
    this.errors.clear();
    const schema = resolve(this.root, this.root);
    const properties = at(schema, "properties");
    const body = properties instanceof Map && properties.size
      ? this.group(schema, () => this.value, (value) => (this.value = value), "", 0)
      : h("p", { class: "dim" }, t("This tool takes no arguments, or any: use the JSON."));
    fill(this.fields, body);
  }

  typed() {
    try {
      const value = parse(this.raw.value);
      if (!(value instanceof Map)) throw new SyntaxError(t("not an object"));
      this.value = value;
      this.broken.delete("");
      this.rebuild();
    } catch (error) {
      this.broken.set("", error.message);
    }
    this.update(false);
  }

  changed() {
    this.update();
  }

  /** Show what is wrong, beside each field. */
  update(writes = true) {
    if (writes) this.raw.value = write(this.value, "  ");
    const found = problems(this.value, this.root, this.root);
    const byPlace = new Map();
    for (const [place, message] of found) if (!byPlace.has(place)) byPlace.set(place, message);
    for (const [place, { node, input }] of this.errors) {
      const message = this.broken.get(place) ?? byPlace.get(place) ?? "";
      const isMissing = message === t("required");
      fill(node, isMissing ? "" : message);
      input?.setAttribute("aria-invalid", String(Boolean(message) && !isMissing));
    }
    fill(this.note, this.broken.get("") ?? found.filter(([place]) => !this.errors.has(place)).map(([place, message]) => `${place || "/"}: ${message}`).slice(0, 3).join("; "));
    this.onchange(!this.broken.size && !found.length, this.broken.get("") ?? found[0]?.join(": ") ?? [...this.broken.values()][0] ?? "");
  }

  group(schema, get, set, place, depth) {
    const required = new Set(at(schema, "required") ?? []);
    const properties = [...(at(schema, "properties") ?? new Map())];
    properties.sort(([a], [b]) => required.has(b) - required.has(a));
    return h(
      "div",
      { class: "group" },
      properties.slice(0, MOST_CHOICES).map(([name, inner]) =>
        this.field(name, inner, {
          required: required.has(name),
          place: `${place}/${name}`,
          depth,
          get: () => get()?.get?.(name),
          set: (value) => {
            let holder = get();
            if (!(holder instanceof Map)) set((holder = new Map()));
            if (value === none) holder.delete(name);
            else holder.set(name, value);
            if (value === none && !holder.size && depth) set(none);
          },
        }),
      ),
    );
  }

  field(name, schema, { required, place, depth, get, set }) {
    schema = resolve(schema, this.root);
    const choices = variants(schema, this.root);
    if (choices.length === 1) schema = new Map([...schema, ...choices[0]]);
    const id = `f${(this.count += 1)}`;
    const wrong = h("span", { class: "wrong", id: `${id}-wrong` });
    const about = text(at(schema, "description"));
    const type = choices.length > 1 ? choices.map(typeOf).filter(Boolean).join(" | ") : typeOf(schema);
    const items = resolve(at(schema, "items"), this.root);
    const label = [
      h("bdi", { class: "name" }, name),
      required ? h("span", { class: "must", title: t("required") }, " *") : null,
      h("span", { class: "type" }, ` ${type === "array" ? `${typeOf(items) || "any"}[]` : type || "any"}`),
    ];
    const attributes = { id, "aria-describedby": `${id}-about ${id}-wrong`, "aria-required": String(required) };
    const put = (value) => {
      set(value);
      this.changed();
    };
    const { node, input, isGroup } = this.control(schema, choices, { attributes, place, depth, get, put, set, items });
    this.errors.set(place, { node: wrong, input });
    const description = h("span", { class: "about", id: `${id}-about` }, about.length > 600 ? `${about.slice(0, 600)}…` : about);
    return isGroup
      ? h("fieldset", null, h("legend", null, label), description, node, wrong)
      : h("div", { class: "field" }, h("label", { for: id }, label), description, node, wrong);
  }

  control(schema, choices, { attributes, place, depth, get, put, set, items }) {
    const options = at(schema, "enum") ?? (schema.has("const") ? [schema.get("const")] : null);
    const standard = schema.has("default") ? write(schema.get("default")) : "";
    const type = choices.length > 1 ? "" : typeOf(schema);
    if (Array.isArray(options) && options.length <= MOST_CHOICES) return this.select(options, { attributes, get, put, standard });
    if (type === "boolean") return this.select([true, false], { attributes, get, put, standard });
    if (type === "object" && at(schema, "properties") instanceof Map && depth < DEEPEST)
      return { isGroup: true, node: this.group(schema, get, set, place, depth + 1) };
    if (type === "array" && depth < DEEPEST && items.size) return this.array(items, { place, depth, get, set });
    const value = get();
    if (type === "string" || type === "number" || type === "integer") {
      const isText = type === "string";
      const isLong = isText && (kindOf(value) === "string" ? value.length > 60 || value.includes("\n") : false);
      const isSecret = at(schema, "format") === "password" || at(schema, "writeOnly") === true;
      const input = h(isLong ? "textarea" : "input", {
        ...attributes,
        type: isLong ? null : isSecret ? "password" : "text",
        inputmode: isText ? null : type === "integer" ? "numeric" : "decimal",
        placeholder: standard ? `${t("default")}: ${standard}` : text(at(schema, "format")),
        autocomplete: "off",
        spellcheck: "false",
        value: value === none ? "" : isText && typeof value === "string" ? value : write(value),
        oninput: () => {
          const typed = input.value;
          this.broken.delete(place);
          if (typed === "") return put(none);
          if (isText) return put(typed);
          if (isNumber(typed.trim())) return put(new Num(typed.trim()));
          this.broken.set(place, t("not a number"));
          this.changed();
        },
      });
      return { node: input, input };
    }
    const input = h("textarea", {
      ...attributes,
      class: "code",
      rows: 2,
      spellcheck: "false",
      placeholder: standard ? `${t("default")}: ${standard}` : "JSON",
      value: value === none ? "" : write(value, "  "),
      oninput: () => {
        this.broken.delete(place);
        if (!input.value.trim()) return put(none);
        try {
          return put(parse(input.value));
        } catch (error) {
          this.broken.set(place, error.message);
          return this.changed();
        }
      },
    });
    return { node: input, input };
  }

  select(options, { attributes, get, put, standard }) {
    const known = options.findIndex((one) => get() !== none && isEqual(one, get()));
    const input = h(
      "select",
      { ...attributes, onchange: () => put(input.value === "" ? none : options[Number(input.value)]) },
      h("option", { value: "" }, standard ? `— (${t("default")}: ${standard})` : "—"),
      options.map((one, index) => h("option", { value: String(index), selected: index === known }, typeof one === "string" ? one : write(one))),
    );
    return { node: input, input };
  }

  array(items, { place, depth, get, set }) {
    const list = h("div", { class: "items" });
    const draw = () => {
      const value = Array.isArray(get()) ? get() : [];
      for (const known of [...this.errors.keys()]) if (known.startsWith(`${place}/`)) this.errors.delete(known);
      fill(
        list,
        value.slice(0, MOST_CHOICES).map((_, index) =>
          h(
            "div",
            { class: "item" },
            this.field(String(index + 1), items, {
              required: true,
              place: `${place}/${index}`,
              depth: depth + 1,
              get: () => get()?.[index],
              set: (one) => (get()[index] = one === none ? "" : one),
            }),
            h("button", { type: "button", class: "small", "aria-label": `${t("Remove")} ${index + 1}`, onclick: () => remove(index) }, "×"),
          ),
        ),
        h("button", { type: "button", class: "small", onclick: insert }, `+ ${t("Add")}`),
      );
    };
    const blank = () => {
      const options = at(items, "enum");
      if (items.has("default")) return items.get("default");
      if (Array.isArray(options) && options.length) return options[0];
      return { object: new Map(), array: [], number: new Num("0"), integer: new Num("0"), boolean: false }[typeOf(items)] ?? "";
    };
    const insert = () => {
      if (!Array.isArray(get())) set([]);
      get().push(blank());
      draw();
      this.changed();
      list.querySelector(".item:nth-last-of-type(1) :is(input, select, textarea)")?.focus();
    };
    const remove = (index) => {
      get().splice(index, 1);
      if (!get().length) set(none);
      draw();
      this.changed();
    };
    draw();
    return { isGroup: true, node: list };
  }
}
