// JSON that keeps what JavaScript would change: numbers stay the text that they were, objects are maps.

export class Num {
  constructor(raw) {
    this.raw = raw;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;
const WHOLE = /^-?(?:0|[1-9]\d*)$/;
const DEEPEST = 200;

export const isNumber = (text) => {
  NUMBER.lastIndex = 0;
  const found = NUMBER.exec(text);
  return found !== null && found[0].length === text.length;
};
export const isWhole = (text) => WHOLE.test(text);

/** Parse JSON; throw a SyntaxError that says where. */
export function parse(text) {
  let at = 0;
  const fail = (what) => {
    const line = text.slice(0, at).split("\n");
    throw new SyntaxError(`${what} (${line.length}:${line.at(-1).length + 1})`);
  };
  const skip = () => {
    SPACE.lastIndex = at;
    SPACE.exec(text);
    at = SPACE.lastIndex;
  };
  const take = (pattern, what) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) fail(what);
    at = pattern.lastIndex;
    return found[0];
  };
  const value = (depth) => {
    if (depth > DEEPEST) fail("too deep");
    skip();
    const letter = text[at];
    if (letter === "{") return fields(depth);
    if (letter === "[") return items(depth);
    if (letter === '"') return JSON.parse(take(TEXT, "a broken text"));
    for (const [word, made] of [["true", true], ["false", false], ["null", null]])
      if (text.startsWith(word, at)) {
        at += word.length;
        return made;
      }
    return new Num(take(NUMBER, letter === undefined ? "the end is missing" : `unexpected ${letter}`));
  };
  const fields = (depth) => {
    const found = new Map();
    at += 1;
    skip();
    if (text[at] === "}") return (at += 1), found;
    for (;;) {
      skip();
      const key = JSON.parse(take(TEXT, "a name is missing"));
      skip();
      if (text[at] !== ":") fail("`:` is missing");
      at += 1;
      found.set(key, value(depth + 1));
      skip();
      if (text[at] === "}") return (at += 1), found;
      if (text[at] !== ",") fail("`,` or `}` is missing");
      at += 1;
    }
  };
  const items = (depth) => {
    const found = [];
    at += 1;
    skip();
    if (text[at] === "]") return (at += 1), found;
    for (;;) {
      found.push(value(depth + 1));
      skip();
      if (text[at] === "]") return (at += 1), found;
      if (text[at] !== ",") fail("`,` or `]` is missing");
      at += 1;
    }
  };
  const found = value(0);
  skip();
  if (at < text.length) fail(`unexpected ${text[at]}`);
  return found;
}

/** Write a value as JSON. */
export function write(value, indent = "", inner = "") {
  if (value instanceof Num) return value.raw;
  const [open, gap, close] = indent ? [`\n${inner}${indent}`, `,\n${inner}${indent}`, `\n${inner}`] : ["", ",", ""];
  if (value instanceof Map) {
    if (!value.size) return "{}";
    const parts = [...value].map(([key, one]) => `${JSON.stringify(key)}:${indent && " "}${write(one, indent, inner + indent)}`);
    return `{${open}${parts.join(gap)}${close}}`;
  }
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[${open}${value.map((one) => write(one, indent, inner + indent)).join(gap)}${close}]`;
  }
  return JSON.stringify(value);
}

export const kindOf = (value) =>
  value === null ? "null"
  : value instanceof Num ? (isWhole(value.raw) ? "integer" : "number")
  : value instanceof Map ? "object"
  : Array.isArray(value) ? "array"
  : typeof value;

export const isEqual = (one, other) => write(one) === write(other);
