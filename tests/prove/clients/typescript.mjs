// The TypeScript SDK's client against the gateway: `typescript.mjs URL TOKEN` or `typescript.mjs stdio COMMAND ARG…`.
// `SDK` is its generation: 1 is one package, 2 has a package for clients.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SDK_FROM);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const one = process.env.SDK === "1";
const root = one ? "@modelcontextprotocol/sdk/client" : "@modelcontextprotocol/client";
const { Client } = await load(one ? `${root}/index.js` : root);
const [where, ...rest] = process.argv.slice(2);
let transport;
if (where === "stdio") {
  const { StdioClientTransport } = await load(one ? `${root}/stdio.js` : `${root}/stdio`);
  transport = new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env });
} else {
  const { StreamableHTTPClientTransport } = await load(one ? `${root}/streamableHttp.js` : root);
  const headers = { Authorization: `Bearer ${rest[0]}` };
  transport = new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers } });
}
const asked = one ? (await load("@modelcontextprotocol/sdk/types.js")).ElicitRequestSchema : "elicitation/create";
const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(asked, async () => ({ action: "accept", content: { seats: 5 } }));
await client.connect(transport);
const report = {};
report.tools = (await client.listTools()).tools.map((tool) => tool.name);
report.echo = (await client.callTool({ name: "mcp_old_echo", arguments: { said: "hallo" } })).structuredContent;
const steps = [];
const options = { onprogress: (report) => steps.push(report.progress) };
await client.callTool({ name: "mcp_new_progress", arguments: {} }, ...(one ? [undefined, options] : [options]));
report.steps = steps;
report.form = (await client.callTool({ name: "mcp_old_form", arguments: {} })).content[0].text;
report.formOfNew = (await client.callTool({ name: "mcp_new_form", arguments: {} })).content[0].text;
report.resources = (await client.listResources()).resources.map((resource) => resource.uri);
report.memo = (await client.readResource({ uri: "dragoman://new/memo://one" })).contents[0].text;
report.prompt = (await client.getPrompt({ name: "old.greet", arguments: { city: "Rom" } })).messages[0].content.text;
await client.close();
console.log(JSON.stringify(report));
