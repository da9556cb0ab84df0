// The words of the page in English and Chinese, and numbers and times as people read them.

import { h, say } from "./dom.js";

export const languages = { en: "English", zh: "中文" };
let current = "en";

export const language = () => current;

export function setLanguage(code) {
  current = code;
  document.documentElement.lang = code === "zh" ? "zh-CN" : "en";
}

/** Return a word or a sentence in the language of the page, with values in place of `{0}`, `{1}`. */
export function t(text, ...values) {
  const found = current === "zh" ? (CHINESE[text] ?? text) : text;
  return values.length ? found.replace(/\{(\d)\}/g, (_, at) => values[at]) : found;
}

const CHINESE = {
  "Skip to the content": "跳到正文", Views: "页面", Fleet: "服务器", Tools: "工具", Calls: "调用", Inbox: "待办", Trust: "信任", Logs: "日志", Tasks: "任务", Users: "用户",
  Language: "语言", "Light or dark": "浅色或深色", "Log out": "退出", "Log in": "登录", Console: "控制台", connected: "已连接", "no connection: trying again": "连接断开，正在重试", "read-only": "只读", waiting: "等待中",
  "Open the link that dragoman has printed; it works once. For a new one, start it again.": "请打开 dragoman 打印的链接，它只能用一次。需要新链接时请重新启动。", "Link, or the token of a gateway": "链接，或网关的令牌", "You are logged out.": "已退出。", "The session is over.": "会话已结束。",
  "servers ready": "个服务器就绪", running: "进行中", calls: "次调用", failed: "失败", "next try in": "下次重试", for: "已", Why: "原因", Fix: "解决", "failed repeatedly": "反复失败", "Details of": "详情：", sandbox: "沙箱", shared: "共享", tokens: "词元", "definitions cost": "定义占用", "{0} calls in {1} days": "{1} 天内 {0} 次调用", tools: "个工具",
  "changed definitions": "处定义有变化", "look at them": "查看", restarts: "次重启", "failed starts": "次启动失败", "calls lost by them": "次调用因此丢失", latency: "延迟", "at most": "最多", "at least": "至少", "no calls yet": "尚无调用",
  Restart: "重启", Enable: "启用", Disable: "停用", Doctor: "诊断", Cancel: "取消", "Running calls of this server fail.": "此服务器上进行中的调用会失败。", "Its tools are withdrawn, and it is stopped, until the configuration is read again.": "它的工具会被撤下并停止运行，直到重新读取配置。", "It is started.": "它会启动。", "It is started or reached once more, beside the connection in use.": "会另外再启动或连接一次，不影响正在使用的连接。",
  "No servers. Import them:": "没有服务器。导入：", Server: "服务器", Protocol: "协议", "Defined in": "定义于", "Shared by users": "共享的用户", Errors: "错误", "Time in states": "各状态时长", Processes: "进程", "Calls by tool": "各工具的调用", Tool: "工具", "It works.": "工作正常。",
  ready: "就绪", "no tools": "没有工具", retrying: "重试中", "needs login": "需要登录", "needs token": "需要令牌", "wrong token": "令牌错误", "not started": "未启动", "not approved": "未批准", stopped: "已停止", downloading: "下载中", off: "已停用", broken: "配置有误", idle: "未启动", connecting: "连接中", degraded: "没有工具", backoff: "重试中", needs_auth: "需要登录", closed: "已停止", unknown: "未知",
  "Search by name or purpose": "按名称或用途搜索", "Search tools": "搜索工具", "all servers": "全部服务器", "says: read-only": "自称只读", "Choose a tool to call it.": "选择一个工具来调用。", Call: "调用", "the server says": "服务器声明", Schema: "模式", "Schema of the result": "结果的模式", "Copy as": "复制为", "Call this tool?": "调用此工具？", Progress: "进度", "Cancelled.": "已取消。",
  "Arguments as JSON": "JSON 形式的参数", "not an object": "不是对象", "This tool takes no arguments, or any: use the JSON.": "此工具没有参数，或接受任意参数：请用 JSON。", required: "必填", default: "默认", "not a number": "不是数字", "not one of the choices": "不在可选值中", "must be": "必须是", "must match": "必须匹配", characters: "个字符", "more than": "大于", "less than": "小于", Remove: "删除", Add: "添加",
  Text: "文本", Table: "表格", Images: "图片", Parts: "组成部分", Result: "结果", ok: "成功", "goes on as a task": "转为任务继续", Sources: "来源", updated: "更新于", "date unknown": "日期不明", "answered by": "来自", Copy: "复制", copied: "已复制", "cannot copy": "无法复制",
  "errors only": "只看错误", "Choose a call to see it whole.": "选择一次调用查看详情。", "not logged: only those since this page": "未记录：只有打开页面之后的", "built in": "内置", Began: "开始", Took: "耗时", User: "用户", "Rules of today": "现行规则", Id: "编号", Arguments: "参数", Answer: "回答", "Not kept": "未保留", redacted: "已遮蔽", cut: "已截断", "Its arguments and its answer are not in the log.": "日志中没有它的参数和回答。", "It cannot be repeated": "无法重复", Repeat: "重复", allow: "允许", ask: "询问", deny: "拒绝",
  "Calls that a rule asks about wait here, also those of your other programs.": "规则要求询问的调用在此等待，包括您其他程序的调用。", "Nothing waits for you.": "没有待办事项。", "{0} left": "剩余 {0}", "calls wait in the inbox": "有调用在待办中等待", "Asked by": "发起者", "this program": "本程序", "a rule asks": "规则要求询问", "Allow once": "允许一次", Allow: "允许", Deny: "拒绝", "Always allow": "始终允许", "this tool": "此工具", "this tool with these arguments": "此工具及这些参数", "every tool of this server": "此服务器的所有工具", "This rule is written to": "此规则写入", "Write this rule and allow the call?": "写入此规则并允许调用？", "Allow this call once?": "允许这次调用？", "Deny this call?": "拒绝这次调用？", call: "调用", resource: "资源", prompt: "提示", question: "问题", login: "登录", approved: "已批准", denied: "已拒绝", expired: "已过期", abandoned: "已放弃", sent: "已发送", pending: "等待中",
  "Changed definitions": "变化的定义", "withheld until you approve": "批准前不提供", "in use until you decide": "决定前仍在使用", "Every server offers what was pinned.": "所有服务器都与固定的定义一致。", "Servers of this project": "本项目的服务器", "changed since you approved it": "批准后有变化", "never approved": "从未批准", "All approved": "全部已批准", "This project defines none.": "本项目没有定义服务器。", Approve: "批准", "Start this server from now on?": "今后启动此服务器？", "Pin these definitions?": "固定这些定义？",
  Filter: "过滤", "Standard error": "标准错误", "No server of this kind.": "没有这类服务器。", "No output yet.": "尚无输出。", "No server works on a task.": "没有进行中的任务。", State: "状态", Says: "说明", "Cancel this task?": "取消此任务？", "Cancel the task": "取消任务", Back: "返回", "No user is connected.": "没有连接的用户。", "Idle for": "空闲", waits: "等待中", working: "进行中", ago: "前",
};

export const count = (number) => number.toLocaleString(current === "zh" ? "zh-CN" : "en");
export const kilo = (number) => (number < 1000 ? String(number) : `${(number / 1000).toFixed(number < 10000 ? 1 : 0)}k`);
export const megabytes = (bytes) => `${(bytes / 1048576).toFixed(0)} MB`;
export const clock = (at) => new Date(at * 1000).toLocaleTimeString(current === "zh" ? "zh-CN" : "en-GB");
export const stamp = (at) => new Date(at * 1000).toLocaleString(current === "zh" ? "zh-CN" : "en-GB");

/** Format a duration of a call. */
export function seconds(value) {
  if (value < 0.0995) return value < 0.001 ? "<1 ms" : `${(value * 1000).toFixed(0)} ms`;
  return value < 99.5 ? `${value.toFixed(1)} s` : span(value);
}

/** Format a time span in its largest units. */
export function span(value) {
  const whole = Math.round(value);
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  return whole < 172800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} d`;
}

export const ago = (at) => `${span(Math.max(0, Date.now() / 1000 - at))} ${t("ago")}`;

/** Return a button that copies a text. */
export function copyButton(text, label) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(t("copied"));
    } catch {
      say(`${t("cannot copy")}: ${text}`, true);
    }
  };
  return h("button", { type: "button", class: "small", "aria-label": `${t("Copy")} ${label ?? text}`, onclick: copy }, label ?? t("Copy"));
}
