// The TypeScript SDK's client against the gateway: `typescript.mjs URL TOKEN` or `typescript.mjs stdio COMMAND ARG…`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SDK_FROM);
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}`)).href);
const { Client } = await load("client/index.js");
const [where, ...rest] = process.argv.slice(2);
let transport;
if (where === "stdio") {
  const { StdioClientTransport } = await load("client/stdio.js");
  transport = new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env });
} else {
  const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
  const headers = { Authorization: `Bearer ${rest[0]}` };
  transport = new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers } });
}
const types = await load("types.js");
const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(types.ElicitRequestSchema, async () => ({ action: "accept", content: { seats: 5 } }));
await client.connect(transport);
const report = {};
report.tools = (await client.listTools()).tools.map((tool) => tool.name);
report.echo = (await client.callTool({ name: "mcp_old_echo", arguments: { said: "hallo" } })).structuredContent;
const steps = [];
await client.callTool({ name: "mcp_new_progress", arguments: {} }, undefined, {
  onprogress: (report) => steps.push(report.progress),
});
report.steps = steps;
report.form = (await client.callTool({ name: "mcp_old_form", arguments: {} })).content[0].text;
report.formOfNew = (await client.callTool({ name: "mcp_new_form", arguments: {} })).content[0].text;
report.resources = (await client.listResources()).resources.map((resource) => resource.uri);
report.memo = (await client.readResource({ uri: "dragoman://new/memo://one" })).contents[0].text;
report.prompt = (await client.getPrompt({ name: "old.greet", arguments: { city: "Rom" } })).messages[0].content.text;
await client.close();
console.log(JSON.stringify(report));
