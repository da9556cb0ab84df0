// A call as text to paste: for a shell, for a program, for a client of a gateway.

import { Num, write } from "./json.js";

const VERSION = "2026-07-28";
const WORDS = { true: "True", false: "False", null: "None" };

const shell = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** Write a value as Python; other than JSON, it has no pairs of escapes for one character. */
function python(value) {
  if (value instanceof Num) return value.raw;
  if (value instanceof Map) return `{${[...value].map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(", ")}}`;
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return typeof value === "string" ? JSON.stringify(value) : WORDS[String(value)];
}

export const asCommand = (name, value) => `dragoman call ${shell(name)} ${shell(write(value))}`;
export const asPython = (name, value) => `result = await mcp.call(${JSON.stringify(name)}, ${python(value)})`;

/** Return a command for the gateway at an address; without one, for the gateway that its first line starts. */
export function asCurl(base, name, value) {
  const client = `"io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`;
  const meta = `{"io.modelcontextprotocol/protocolVersion":"${VERSION}",${client}}`;
  const params = `{"name":${JSON.stringify(name)},"arguments":${write(value)},"_meta":${meta}}`;
  const headers = ["Content-Type: application/json", "Accept: application/json, text/event-stream", `MCP-Protocol-Version: ${VERSION}`, "Mcp-Method: tools/call", `Mcp-Name: ${name}`];
  const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`;
  const words = ["curl", shell(base || "http://127.0.0.1:8765/mcp"), "-H", '"Authorization: Bearer $DRAGOMAN_TOKEN"', ...headers.flatMap((one) => ["-H", shell(one)]), "--data-raw", shell(body)];
  return `${base ? "" : "# dragoman serve --http 8765\n"}${words.join(" ")}`;
}
