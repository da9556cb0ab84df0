// Vercel's AI SDK with its MCP client and a mock model: `ai_sdk.mjs http|sse URL TOKEN` or `ai_sdk.mjs stdio COMMAND ARG…`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SDK_FROM);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { createMCPClient } = await load("@ai-sdk/mcp");
const { generateText, stepCountIs } = await load("ai");
const { MockLanguageModelV4 } = await load("ai/test");
const [where, ...rest] = process.argv.slice(2);
let transport = { type: where, url: rest[0], headers: { Authorization: `Bearer ${rest[1]}` } };
if (where === "stdio") {
  const { Experimental_StdioMCPTransport: StdioTransport } = await load("@ai-sdk/mcp/mcp-stdio");
  transport = new StdioTransport({ command: rest[0], args: rest.slice(1), env: process.env });
}
const client = await createMCPClient({ transport });
const tools = await client.tools();
const count = { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined };
const turn = (content, reason) => ({
  content: [content],
  finishReason: { unified: reason, raw: undefined },
  usage: { inputTokens: count, outputTokens: { total: 1, text: 1, reasoning: undefined } },
  warnings: [],
});
const call = { type: "tool-call", toolCallId: "1", toolName: "mcp_old_echo", input: '{"said":"hallo"}' };
const model = new MockLanguageModelV4({
  doGenerate: [turn(call, "tool-calls"), turn({ type: "text", text: "done" }, "stop")],
});
const { text, steps } = await generateText({ model, tools, prompt: "Go.", stopWhen: stepCountIs(3) });
const [{ output }] = steps.flatMap((step) => step.toolResults);
await client.close();
console.log(JSON.stringify({ text, tools: Object.keys(tools), echo: output.structuredContent }));
